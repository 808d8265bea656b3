"""
Everything the package knows before a question is asked: models, GPUs, formats, assumptions and the market.

`load_catalog` reads the data folder once; `resolve` turns a Scenario into a Question that `decide` can answer alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuguide.catalog import offers, resolve, shapes
from gpuguide.catalog.formats import assumptions_from_table, rows_by_name
from gpuguide.catalog.gpus import gpus_from_table
from gpuguide.catalog.listing import listed, spelling
from gpuguide.catalog.models import Models
from gpuguide.catalog.package import data_folder, read_columns
from gpuguide.catalog.typical import with_architecture_keys
from gpuguide.columns import Columns
from gpuguide.errors import InvalidScenario, must_be
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.engine import Engine
from gpuguide.spec.hardware import Gpu, Nodes
from gpuguide.spec.job import MediaJob, ServingJob, TrainingJob
from gpuguide.spec.model import MediaModel, Model
from gpuguide.spec.precision import Optimizer, PrecisionRecipe, WeightFormat
from gpuguide.spec.scenario import MOST_GPUS, Question, Scenario

if TYPE_CHECKING:
    import pandas as pd

MACHINES = {
    "pretrain": (1, 2, 4, 8, 16, 32, 64),
    "full": (1, 2, 4),
    "lora": (1,),
    "qlora": (1,),
    "serve": (1, 2, 4),
}
"""Numbers of machines tried when the scenario does not say."""
COUNT = f"give a whole number from 1 to {MOST_GPUS:,}"
FABRIC = "give a rate above zero, in Gbit/s"
OWN_ASSUMPTIONS = "GPUGUIDE_ASSUMPTIONS"
"""Environment variable that names a file of assumptions for a whole process and its kernels, as `gpuguide app` does."""
MOST_MARKETS = 64
"""Markets of some number of machines that are kept, about 2 MB each; a sweep over sizes asks for many. [-]"""


class Catalog:
    """
    The tables of one data folder.

    Parameters
    ----------
    folder : Path, optional
        The shipped tables when left out.
    today : date, optional
        Day from which the age of prices is counted.
    models_from : Path, optional
        Folder that model files may be read from; any when left out.
    """

    def __init__(
        self, folder: Path | str | None = None, today: date | None = None, models_from: Path | None = None
    ) -> None:
        if folder is not None:
            must_be("folder", folder, (str, Path), "give the path of a data folder")
        if today is not None:
            must_be("today", today, date, "give a datetime.date")
        self.folder = data_folder() if folder is None else Path(folder)
        self.today = date.today() if today is None else today
        self.models_from = models_from
        self.models = Models(self.folder)
        self._clusters: dict[tuple[int, ...], tuple[Columns, Nodes]] = {}

    @cached_property
    def gpus(self) -> dict[str, Gpu]:
        """GPUs by name."""
        return gpus_from_table(read_columns("gpus", self.folder))

    @cached_property
    def recipes(self) -> dict[str, PrecisionRecipe]:
        """Precision recipes of training runs by name."""
        return rows_by_name(read_columns("recipes", self.folder), PrecisionRecipe)

    @cached_property
    def optimizers(self) -> dict[str, Optimizer]:
        """Optimizers by name."""
        return rows_by_name(read_columns("optimizers", self.folder), Optimizer)

    @cached_property
    def weight_formats(self) -> dict[str, WeightFormat]:
        """Stored weight formats by name."""
        return rows_by_name(read_columns("weight_formats", self.folder), WeightFormat)

    @cached_property
    def engines(self) -> dict[str, Engine]:
        """Serving engines by name."""
        return rows_by_name(read_columns("engines", self.folder), Engine)

    @cached_property
    def assumptions(self) -> Assumptions:
        """Every tunable constant with its band."""
        return assumptions_from_table(read_columns("assumptions", self.folder))

    @cached_property
    def market(self) -> pd.DataFrame:
        """One row per machine and way to pay for it, with age, source and billing facts."""
        return self._market.frame("str")

    @cached_property
    def _market(self) -> Columns:
        return offers.market(folder=self.folder, gpus=self.gpus, today=self.today)

    def gpu(self, name: str) -> Gpu:
        """
        An accelerator by name; case does not count.

        Raises
        ------
        UnknownName
            If there is none; carries the nearest names.
        """
        must_be("gpu", name, str, "give the name of a GPU")
        return resolve.row_named("GPU", name, self.gpus)

    def model(self, name: str) -> Model | MediaModel:
        """A model by catalog name, forgiving about case, owner and separators."""
        must_be("model", name, str, "give the name of a model")
        return self.models.get(name)

    def nodes(
        self,
        gpu: str,
        gpus_per_node: int = 1,
        nodes: int = 1,
        fabric: str | None = None,
        fabric_gbps: float | None = None,
        bridged: int | None = None,
    ) -> Nodes:
        """One machine shape, as arrays of length one; `bridged` cards are joined by one NVLink bridge."""
        for field, count in (("gpus_per_node", gpus_per_node), ("nodes", nodes)):
            must_be(field, count, (int, np.integer), COUNT)
            if not 1 <= count <= MOST_GPUS:
                raise InvalidScenario(field, count, COUNT)
        if fabric is not None:
            must_be("fabric", fabric, str, "give the name of a network, or nothing")
        if fabric_gbps is not None:
            must_be("fabric_gbps", fabric_gbps, (int, float, np.number), FABRIC)
            if not 0 < fabric_gbps < 1e9:
                raise InvalidScenario("fabric_gbps", fabric_gbps, FABRIC)
        if bridged is not None:
            must_be("bridged", bridged, (int, np.integer), COUNT)
        shape = shapes.Shape(self.gpu(gpu).name, gpus_per_node, nodes, fabric, fabric_gbps, bridged=bridged)
        return shapes.nodes_of([shape], self.gpus)

    def offers(
        self,
        *,
        gpus: Sequence[str] = (),
        min_memory_gb: float = 0.0,
        providers: Sequence[str] = (),
        kinds: Sequence[str] = (),
    ) -> pd.DataFrame:
        """
        The market as people read it: price per hour, per GPU, date and source of every row, cheapest GPU first.

        Parameters
        ----------
        gpus, providers, kinds : sequence of str
            Only these; all when empty.
        min_memory_gb : float
            Least marketed memory of one GPU. [GB]

        Raises
        ------
        UnknownName
            If a name is in no offer and no table.
        """
        asked = {"gpus": gpus, "min_memory_gb": min_memory_gb, "providers": providers, "kinds": kinds}
        return self.listed(**asked).frame("str")

    def listed(self, **asked: Any) -> Columns:
        """`offers` as columns, which need no pandas; takes the same."""
        return listed(self._market, self.gpus, **asked)

    def resolve(self, scenario: Scenario) -> Question:
        """
        The Question a scenario asks: names looked up, defaults filled, shapes of the market collected.

        Raises
        ------
        UnknownName, InvalidScenario, NotModelled
            If a name is unknown or a value impossible; one sentence each.
        """
        must_be("scenario", scenario, Scenario, "give a Scenario, such as Scenario(workload='lora')")
        scenario = self._with_known_names(scenario)
        if scenario.currency.upper() != "USD" and scenario.currency_per_usd is None:
            raise InvalidScenario("currency", scenario.currency, "give its exchange rate too, currency_per_usd")
        found = self._model(scenario)
        job: TrainingJob | ServingJob | MediaJob
        if scenario.is_media or (scenario.is_training and isinstance(found, MediaModel)):
            from gpuguide.catalog import media

            make = media.media if scenario.is_media else media.media_training
            scenario, job = make(scenario, resolve.media_model(found, scenario), self)
        elif scenario.is_training:
            scenario, job = resolve.training(scenario, resolve.language_model(found, scenario), self)
        else:
            scenario, job = resolve.serving(scenario, resolve.language_model(found, scenario), self)
        market, nodes = self._market_for(scenario)
        return Question(
            scenario=scenario,
            model=found,
            job=job,
            shapes=nodes,
            market=market,
            assumptions=self.assumptions,
            again=self.resolve,
        )

    def _model(self, scenario: Scenario) -> Model | MediaModel:
        if scenario.model is not None and scenario.params_b is not None:
            raise InvalidScenario(
                "params_b", scenario.params_b, f"give either a model ({scenario.model}) or a parameter count"
            )
        return with_architecture_keys(
            scenario,
            self._named,
            resolve.DEFAULT_MODELS.get(scenario.workload, resolve.DEFAULT_MODEL),
        )

    def _named(self, name: str) -> Model | MediaModel:
        """A model of the catalog, or what a path or a Hub id leads to; only these need the readers of files."""
        if name in self.models.names():
            return self.models.get(name)
        from gpuguide.catalog.source import read_model

        return read_model(name, self.models, base=self.models_from)

    def _with_known_names(self, scenario: Scenario) -> Scenario:
        """GPU, provider and kind names checked and in the tables' spelling."""
        known = self._names_of_market
        cards = tuple(spelling("GPU", name, (*known["gpu"], *self.gpus)) for name in scenario.gpu)
        keys = self._provider_keys if scenario.providers else {}
        providers = tuple(
            spelling("provider", keys.get(name.casefold(), name), known["provider"]) for name in scenario.providers
        )
        kinds = tuple(spelling("kind of offer", name, known["kind"]) for name in scenario.offer_kinds)
        return scenario.model_copy(update={"gpu": cards, "providers": providers, "offer_kinds": kinds})

    @cached_property
    def _provider_keys(self) -> dict[str, str]:
        """Keys of providers by the names that people are shown."""
        table = read_columns("providers", self.folder)
        return {
            shown_name(name).casefold(): key
            for key, name in zip(table.values("provider"), table.values("name"), strict=True)
        }

    @cached_property
    def _names_of_market(self) -> dict[str, list[str]]:
        return {column: self._market.codes(column)[1] for column in ("gpu", "provider", "kind")}

    def _market_for(self, scenario: Scenario) -> tuple[Columns, Nodes]:
        """The market as clusters of the numbers of machines worth trying, and its distinct shapes."""
        if scenario.nodes is not None:
            machines: tuple[int, ...] = (scenario.nodes,)
        elif scenario.gpus is not None:
            _, sizes = self._market.codes("gpus_per_node")
            fitting = sorted({scenario.gpus // count for count in sizes if scenario.gpus % count == 0})
            machines = tuple(fitting) or (1,)
        else:
            machines = MACHINES.get(scenario.workload, (1,))
        found = self._clusters.get(machines)
        if found is None:
            rows = offers.clusters(self._market, machines)
            distinct, place = _distinct_shapes(rows)
            table = rows.but(shape=place, gpu_code=rows.codes("gpu")[0])
            while len(self._clusters) >= MOST_MARKETS:
                self._clusters.pop(next(iter(self._clusters)), None)
            found = self._clusters[machines] = (table, shapes.nodes_of(distinct, self.gpus))
        return found


def load_catalog(folder: Path | str | None = None) -> Catalog:
    """The catalog of a data folder, the shipped one when left out; read once a day, no network."""
    if folder is not None:
        must_be("folder", folder, (str, Path), "give the path of a data folder")
    return _loaded(None if folder is None else Path(folder), date.today())


@lru_cache(maxsize=4)
def _loaded(folder: Path | None, today: date) -> Catalog:
    """What a server reads in the evening counts the age of prices wrongly the next morning."""
    catalog, own = Catalog(folder, today), os.environ.get(OWN_ASSUMPTIONS)
    if not own:
        return catalog
    from gpuguide.catalog.own import with_assumptions

    return with_assumptions(catalog, Path(own))


def shown_name(name: str) -> str:
    """A provider's name as it is shown: what stands in brackets is left out."""
    return name.partition(" (")[0]


def _distinct_shapes(table: Columns) -> tuple[list[shapes.Shape], np.ndarray]:
    """Shapes in the table and the place of each row's among them."""
    keys = ("computed_as", "gpus_per_node", "nodes", "fabric", "fabric_gbps_per_node")
    known: dict[tuple[str, int, int, str, float], int] = {}
    place = np.empty(len(table), dtype=np.intp)
    for row, (gpu, count, machines, fabric, gbps) in enumerate(
        zip(*(table.values(key).tolist() for key in keys), strict=True)
    ):
        # One machine has no fabric between nodes: providers must not split its shape.
        alone = machines == 1
        shape = (gpu, count, machines, "" if alone else fabric, -1.0 if alone or gbps != gbps else gbps)
        place[row] = known.setdefault(shape, len(known))
    found = [
        shapes.Shape(gpu, int(count), int(machines), fabric or None, None if gbps < 0 else gbps)
        for gpu, count, machines, fabric, gbps in known
    ]
    return found, place
