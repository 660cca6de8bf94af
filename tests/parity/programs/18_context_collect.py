"""NumberSequenceSource at parallelism 2, the runtime context, execute_and_collect and _async."""
from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import MapFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource


class Where(MapFunction):
    def open(self, runtime_context):
        self.context = runtime_context
        self.counter = runtime_context.get_metrics_group().counter("seen")

    def map(self, value):
        c = self.context
        self.counter.inc()
        index = c.get_index_of_this_subtask()
        parallelism = c.get_number_of_parallel_subtasks()
        facts = [
            "where" in c.get_task_name(),
            c.get_task_name_with_subtasks().startswith(c.get_task_name()),
            "(%d/%d)" % (index + 1, parallelism) in c.get_task_name_with_subtasks(),
            parallelism,
            0 <= index < parallelism,
            c.get_attempt_number(),
            c.get_job_parameter("no such", "default"),
            self.counter.get_count() > 0,
        ]
        return value, facts


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_source(
    NumberSequenceSource(1, 6), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
)
with numbers.map(Where()).name("where").execute_and_collect("context") as results:
    for value in results:
        print("untyped", value)

pair = Types.TUPLE([Types.LONG(), Types.LIST(Types.STRING())])
with numbers.map(lambda n: (n, ["x"] * n), output_type=pair).execute_and_collect() as results:
    print("typed", sorted(results))
with numbers.filter(lambda n: n > 4).execute_and_collect() as results:
    print("numbers", sorted(results))

numbers.map(lambda n: n * n, output_type=Types.LONG()).print()
client = env.execute_async("async")
client.get_job_execution_result().result()
print("async job done")
