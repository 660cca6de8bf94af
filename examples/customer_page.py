"""What does the job know about customer 42? A small web program that asks a running job.

penstock run examples/customer_page.py --job         # counts orders; keeps running
penstock serve --dir /tmp/shop                        # answers from the last checkpoint
python examples/customer_page.py                      # http://localhost:8000/customer/42
"""

import sys
from collections.abc import Iterator
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.queryable import QueryableStateClient, QueryableStateError

PRODUCTS = ["apples", "pears", "plums"]


class Orders(KeyedProcessFunction[int, int, int]):
    """Counts the orders of a customer, by product, too."""

    def open(self, runtime_context: RuntimeContext) -> None:
        count = ValueStateDescriptor("count", Types.LONG())
        count.set_queryable("orders")
        self.count = runtime_context.get_state(count)
        products = MapStateDescriptor("products", Types.STRING(), Types.LONG())
        products.set_queryable("products")
        self.products = runtime_context.get_map_state(products)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        self.count.update((self.count.value() or 0) + 1)
        product = PRODUCTS[value // 100 % 3]
        self.products.put(product, (self.products.get(product) or 0) + 1)
        yield value


def run_job(directory: str, orders: int, env: StreamExecutionEnvironment | None = None) -> None:
    """Count the orders of a hundred customers, with a checkpoint every second."""
    env = env or StreamExecutionEnvironment.get_execution_environment()
    settings = {"execution.checkpointing.dir": directory, "penstock.job-id": "shop"}
    env.configure(Configuration.from_dict(settings))
    env.enable_checkpointing(1000)
    numbers = NumberSequenceSource(1, orders)
    keyed = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "orders").key_by(
        lambda n: n % 100, Types.LONG()
    )
    keyed.process(Orders(), Types.LONG()).uid("orders").sink_to(DiscardingSink())
    env.execute("shop")


def page_of(state: QueryableStateClient, customer: int) -> str:
    """Return the page of a customer: all that the job's states have of it, in one checkpoint."""
    known = state.known("shop", customer)
    rows = [f"<li>{escape(s.state)}: {escape(str(s.keys[0].value))}" for s in known.states]
    as_of = f"as of checkpoint {known.checkpoint}, {known.age / 1000:.1f} s ago"
    return f"<h1>Customer {customer}</h1><ul>{''.join(rows) or '<li>nothing'}</ul><p>{as_of}"


def web_server(state: QueryableStateClient, port: int = 8000) -> ThreadingHTTPServer:
    """Return a web server with a page for each customer."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                status, text = 200, page_of(state, int(self.path.rpartition("/")[2]))
            except (QueryableStateError, ValueError) as error:
                status, text = 503, escape(str(error))
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

    return ThreadingHTTPServer(("localhost", port), Pages)


if __name__ == "__main__":
    if "--job" in sys.argv:
        run_job("/tmp/shop", 10**12)
    else:
        web_server(QueryableStateClient("http://localhost:8081")).serve_forever()
