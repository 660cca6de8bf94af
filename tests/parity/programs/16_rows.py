"""Row: its own methods, and rows as elements, positional and named."""
from pyflink.common import Row, RowKind, Types
from pyflink.datastream import StreamExecutionEnvironment

r = Row("Ada", 36)
print(r, repr(r), len(r), r[0], r[1], list(r), "Ada" in r)
p = Row(name="Bo", age=7)
print(p, p.name, p["age"], p.as_dict(), "name" in p, "Bo" in p)
Person = Row("name", "age")
print(Person("Cy", 12), Person("Cy", 12) == Row(name="Cy", age=12), r == Row("Ada", 36), r == p)
r[1] = 37
r.set_field_names(["name", "age"])
print(r, r.age, r.get_row_kind(), p.get_fields_by_names(["age"]))
gone = Row.of_kind(RowKind.DELETE, "Di", 1)
print(gone, gone.get_row_kind(), gone == Row("Di", 1))
print(Row(a=Row(b=1), c=[Row(d=2)]).as_dict(True))

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
FIELDS = [Types.STRING(), Types.INT()]
people = [("Ada", 36), ("Bo", 7), ("Cy", 12)]
named = env.from_collection(people, type_info=Types.ROW_NAMED(["name", "age"], FIELDS))
positional = env.from_collection(people, type_info=Types.ROW(FIELDS))
named.print("named")
positional.print("positional")
named.map(lambda r: "%s/%s" % (r.name, r["age"]), output_type=Types.STRING()).print("by name")
positional.map(lambda r: (r[1], r[0])).print("by position")
named.filter(lambda r: r.age > 10).print("filtered")
named.map(
    lambda r: Row(r.age * 2, r.name), output_type=Types.ROW([Types.INT(), Types.STRING()])
).print("swapped")
env.execute("rows")

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
with env.from_collection(people).map(
    lambda t: Row(*t), output_type=Types.ROW_NAMED(["name", "age"], FIELDS)
).execute_and_collect("rows, collected") as results:
    for row in results:
        print("collected", type(row).__name__, row, row.age)
