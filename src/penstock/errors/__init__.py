"""Every error that penstock raises on purpose; `base` says how one is declared."""

# ruff: noqa: F403 - this package exports the errors of all its modules
from penstock.errors.base import MethodCall as MethodCall
from penstock.errors.base import PenstockError as PenstockError
from penstock.errors.brokers import *
from penstock.errors.checkpoints import *
from penstock.errors.configuration import *
from penstock.errors.connectors import *
from penstock.errors.job import *
from penstock.errors.kafka import *
from penstock.errors.postgres import *
from penstock.errors.pyflink_names import *
from penstock.errors.recovery import *
from penstock.errors.serve import *
from penstock.errors.servers import *
from penstock.errors.state import *
from penstock.errors.storage import *
