"""Records without times: what a function sees of time, strategy or not."""
from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, ProcessFunction, StreamExecutionEnvironment


class Show(ProcessFunction):
    def process_element(self, value, ctx):
        yield f"{value} at {ctx.timestamp()}, watermark {ctx.timer_service().current_watermark()}"


class ShowKeyed(KeyedProcessFunction):
    def process_element(self, value, ctx):
        now = ctx.timer_service().current_processing_time()
        watermark = ctx.timer_service().current_watermark()
        yield f"{ctx.get_current_key()}: {value} at {ctx.timestamp()}, {watermark}, {now > 10**12}"


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_collection([1, 2, 3], type_info=Types.INT())
numbers.process(Show(), output_type=Types.STRING()).print("plain")
numbers.key_by(lambda n: n % 2, Types.INT()).process(ShowKeyed(), Types.STRING()).print("keyed")
numbers.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps()).process(
    Show(), output_type=Types.STRING()
).print("no assigner")
numbers.assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks()).process(
    Show(), output_type=Types.STRING()
).print("no watermarks")
env.execute("no timestamps")
