from io import BytesIO

from penstock.common import TypeSerializer


class OneByte(TypeSerializer[int]):
    def serialize(self, element: int, stream: BytesIO) -> None:
        stream.write(bytes([element]))

    def deserialize(self, stream: BytesIO) -> int:
        return stream.read(1)[0]


class Other(OneByte):
    pass


def test_values_are_read_back_from_the_stream() -> None:
    stream = BytesIO()
    OneByte().serialize(7, stream)
    stream.seek(0)
    assert OneByte().deserialize(stream) == 7


def test_serializers_of_one_class_are_equal() -> None:
    assert OneByte() == OneByte()
    assert hash(OneByte()) == hash(OneByte())
    assert Other() != OneByte()
    assert repr(OneByte()) == "OneByte()"
