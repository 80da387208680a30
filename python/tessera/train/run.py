# SPDX-License-Identifier: MIT
"""A training run from config to model.pt."""

import csv
import dataclasses
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from tessera.train.dataset import Dataset, batches, batches_of_edges, read_dataset
from tessera.train.errors import TrainError
from tessera.train.measure import compare, draw_parity, repulsion_energies
from tessera.train.optimizer import Optimizer
from tessera.train.packs import Counts, FrameSizes, Pack, make_pack
from tessera.train.prefetch import ahead
from tessera.train.ranks import Ranks
from tessera.train.record import Ladder, RecordedStep
from tessera.train.references import fit_references
from tessera.train.settings import TrainSettings
from tessera.train.start import freeze, start_model
from tessera.train.step import CompiledStep, check_agreement, eager_step, seconds_of
from tessera.train.write import write_atomically, write_model

logger = logging.getLogger(__name__)

COLUMNS = ("epoch", "step", "learning_rate", "gradient", "loss", "loss_energy", "loss_forces", "loss_stress",
           "energy_rmse_meV_atom", "forces_rmse_meV_A", "stress_rmse_GPa", "seconds")  # fmt: skip
"""Of log.csv. Losses are means over the epoch while weights change; errors are of the averaged weights on the held-out
frames (empty without)."""
THREADS = {"cpu": 0, "cuda": 4}
"""That lay batches out while the device computes; on a CPU they would only take turns with it."""
EPOCHS_AHEAD = 100
"""Whose batches a compiled step has room for; a larger batch of a later epoch is compiled for when it comes."""
_MAY_CHANGE = ("compile", "record", "measure_every", "output", "device")
"""Settings that a resumed run may change: nothing that it computes depends on them but roundings."""


class Run:
    """Model, data, optimizer and files of one run.

    Args:
        settings: the config.
        ranks: the processes that share each batch; all make a Run alike.
        data: frames that were read before for the same `settings.data`; None reads them.

    Attributes:
        epoch: epochs done.

    Raises:
        TrainError: data or model that cannot be.
    """

    def __init__(self, settings: TrainSettings, ranks: Ranks, data: Dataset | None = None) -> None:
        self.settings, self.ranks, self.epoch = settings, ranks, 0
        # TF32 and bfloat16 would cost the third digit of forces, and more of their derivatives.
        torch.set_float32_matmul_precision("highest")
        self.output = settings.path(settings.output)
        self.data: Dataset = data or read_dataset(settings)
        self.model, self.mapping = start_model(settings, self.data.elements)
        self.data.find_neighbors(max(self.model.cutoffs), quiet=ranks.rank > 0)
        if settings.references == "fit":
            known = repulsion_energies(self.model, self.data.training, self.data.training_edges)
            energies = fit_references(self.data.training, self.model.elements, known)
            table = torch.tensor(list(energies.values()), dtype=torch.float64)
            self.model.reference_energies.copy_(table)
        self.parameters = freeze(self.model, settings.model.frozen)
        num_steps = len(self.order(0)) * settings.optimizer.epochs
        self.optimizer = Optimizer(self.model, self.parameters, settings.optimizer, num_steps)
        self._spent = 0.0  # seconds of training, earlier parts of a resumed run included
        self._step = eager_step(self.model, self.parameters, settings.loss)
        self._room: Ladder | None = None
        logger.info(
            "%d frames to train on, %d held out; %d parameters, %d of them trained; %s",
            len(self.data.training), len(self.data.validation), sum(p.numel() for p in self.model.parameters()),
            sum(p.numel() for p in self.parameters), ", ".join(self.model.elements),
        )  # fmt: skip

    def order(self, epoch: int) -> list[Any]:
        """Batches of an epoch, places of training frames."""
        chosen, seed = self.settings.optimizer, self.settings.seed
        if chosen.batch_edges == 0:
            return batches(len(self.data.training), chosen.batch_size, seed, epoch)
        edges = np.array([len(one.receiver) for one in self.data.training_edges])
        return batches_of_edges(edges, chosen.batch_edges, seed, epoch)

    def packs(self, batch: Any) -> list[Pack]:
        """Lay this rank's share of a batch out, none or one pack, on the device or in page-locked memory.

        Weights refer to the whole batch.
        """
        counts = Counts.of([self.data.training[place] for place in batch])
        own = self.ranks.share(batch)
        frames = [self.data.training[place] for place in own]
        edges = [self.data.training_edges[place] for place in own]
        if not frames:
            return []
        pack = make_pack(self.model, frames, edges, counts, self._room, self.settings.loss.element_forces)
        return [pack.pin_memory() if self.settings.record else pack.to(self.model.reference_energies.device)]

    def gradients(self, packs: list[Pack]) -> list[Tensor]:
        """Return the loss terms, float64 [3], and the gradients of a batch, complete on every rank."""
        if packs:
            (pack,) = packs
            return self.ranks.add_up(self._step(pack))
        nothing = [torch.zeros(3, dtype=torch.float64, device=self.model.reference_energies.device)]
        return self.ranks.add_up(nothing + [torch.zeros_like(parameter) for parameter in self.parameters])

    def prepare_step(self) -> None:
        """Compile or record the step as the settings say, and compare it with the eager one on the next batch.

        Raises:
            TrainError: the two disagree.
        """
        chosen, device = self.settings, self.model.reference_energies.device
        if not (chosen.compile or chosen.record):
            return
        started, eager, step = time.perf_counter(), self._step, self._step
        batches_ahead = self.order(self.epoch)[:1]
        first = batches_ahead[0]
        if chosen.compile:  # one set of extents for all batches: each set is compiled anew
            step = CompiledStep(self.model, self.parameters, chosen.loss)
            epochs = range(self.epoch, min(chosen.optimizer.epochs, self.epoch + EPOCHS_AHEAD))
            batches_ahead = [batch for epoch in epochs for batch in self.order(epoch)]
        shares = [share for share in map(self.ranks.share, batches_ahead) if share]
        if shares:
            sizes = FrameSizes(self.model, self.data.training, self.data.training_edges)
            self._room = Ladder(sizes.hold(shares))
        if chosen.record:
            step = RecordedStep(step, device)
        for pack in (pack.to(device) for pack in self.packs(first)):
            difference = check_agreement(step, eager, pack, self.model.dtype)
            spent = time.perf_counter() - started
            before, now = (seconds_of(one, pack) for one in (eager, step))
            logger.info(
                "prepared the step in %.1f s; it equals the eager one to %.1e and takes %.1f instead of %.1f ms for "
                "%d atoms, %d edges with padding", spent, difference, 1e3 * now, 1e3 * before,
                int(pack.graph.weight.sum()), len(pack.graph.lists[-1].receiver),
            )  # fmt: skip
        self._step = step

    def train(self, last_epoch: int | None = None) -> None:
        """Train up to `last_epoch` (default: all), with files written after every epoch, plots at the end."""
        end = min(last_epoch or self.settings.optimizer.epochs, self.settings.optimizer.epochs)
        if self.epoch < end:
            self.prepare_step()
        while self.epoch < end and self._part_of_time() < 1.0:
            row = self._train_epoch()
            self.epoch += 1
            if self.ranks.rank == 0:
                self._write(row)
        if self.ranks.rank == 0:
            self._draw()

    def _part_of_time(self) -> float:
        """Part of `optimizer.minutes` that is over, alike on every rank; 0 without a limit."""
        minutes = self.settings.optimizer.minutes
        return self.ranks.agree(self._spent) / (60.0 * minutes) if minutes else 0.0

    def _train_epoch(self) -> dict[str, float]:
        started, losses, sizes = time.perf_counter(), [], []
        clock = started
        chosen = self.settings.optimizer
        order = self.order(self.epoch)
        name = f"epoch {self.epoch + 1}/{chosen.epochs}"
        rate, length = 0.0, torch.zeros(())
        terms_before: Tensor | None = None
        laid_out = ahead(self.packs, order, THREADS[self.settings.device])
        progress = tqdm(laid_out, name, total=len(order), unit="step", disable=self.ranks.rank > 0, leave=False)
        for batch, packs in zip(order, progress, strict=False):
            terms, *gradients = self.gradients(packs)
            part = self._part_of_time()
            rate, length = self.optimizer.update(gradients, part)
            if terms_before is not None:  # a step late, so that a GPU has the next one when it ends this one
                losses.append(self._finite(terms_before))
            terms_before = terms.clone()  # a recorded step writes them again
            sizes.append(len(batch))
            now = time.perf_counter()
            self._spent, clock = self._spent + now - clock, now
            if part >= 1.0:
                break
        progress.close()
        laid_out.close()
        losses.append(self._finite(terms_before))
        means = np.average(losses, axis=0, weights=sizes)
        loss = self.settings.loss
        return {
            "epoch": self.epoch + 1, "step": self.optimizer.step, "learning_rate": rate, "gradient": float(length),
            "loss": float(means @ (loss.energy, loss.forces, loss.stress)), "loss_energy": float(means[0]),
            "loss_forces": float(means[1]), "loss_stress": float(means[2]), "seconds": time.perf_counter() - started,
        }  # fmt: skip

    def _finite(self, terms: Tensor) -> np.ndarray:
        """Fetch a step's terms.

        Raises:
            TrainError: they are no numbers.
        """
        values = terms.cpu().numpy()
        if not np.isfinite(values).all():
            raise TrainError(
                f"expected a finite loss, found {values.tolist()} by step {self.optimizer.step}; lower "
                "optimizer.learning_rate, or look for atoms on top of each other in the data"
            )
        return values

    def _write(self, row: dict[str, float]) -> None:
        started = time.perf_counter()
        if self.data.validation and self.epoch % self.settings.measure_every == 0:
            errors = compare(self.optimizer.averaged, self.data.validation, self.data.validation_edges).rmse()
            row |= {"energy_rmse_meV_atom": errors["energy"], "forces_rmse_meV_A": errors["forces"],
                    "stress_rmse_GPa": errors["stress"]}  # fmt: skip
        path = self.output / "log.csv"
        is_new = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="")
            if is_new:
                writer.writeheader()
            writer.writerow({key: f"{value:.6g}" for key, value in row.items()})
        self._spent += time.perf_counter() - started
        state = {"epoch": self.epoch, "settings": _plain(self.settings), "optimizer": self.optimizer.state(),
                 "spent": self._spent}  # fmt: skip
        write_model(self.output, self.optimizer.averaged, self.mapping)
        write_atomically(self.output / "checkpoint.pt", state)
        errors = ", ".join(f"{key} {row[key]:.4g}" for key in COLUMNS[8:11] if key in row)
        logger.info("epoch %d, step %d: loss %.4g, %s", self.epoch, row["step"], row["loss"], errors or "not measured")

    def _draw(self) -> None:
        held_out = bool(self.data.validation)
        frames = self.data.validation if held_out else self.data.training
        edges = self.data.validation_edges if held_out else self.data.training_edges
        comparison = compare(self.optimizer.averaged, frames, edges)
        title = f"{len(frames)} {'held-out' if held_out else 'training'} frames, epoch {self.epoch}"
        draw_parity(self.output / "parity.png", comparison, title)
        logger.info("%s: %s", title, ", ".join(f"{kind} {error:.4g}" for kind, error in comparison.rmse().items()))

    def prepare_output(self, *, resume: bool) -> None:
        """Make the folder, or go on from the checkpoint in it.

        Raises:
            TrainError: a checkpoint that is in the way, missing, or of another config.
        """
        checkpoint: Path = self.output / "checkpoint.pt"
        if resume:
            if not checkpoint.is_file():
                raise TrainError(f"--resume: expected {checkpoint}, found none; start without --resume")
            self._resume(torch.load(checkpoint, map_location="cpu", weights_only=True))
        elif checkpoint.exists() or (self.output / "log.csv").exists():
            raise TrainError(
                f"expected a new folder for output, found a run in {self.output}; go on with --resume, or set output"
            )
        self.output.mkdir(parents=True, exist_ok=True)

    def _resume(self, state: dict[str, Any]) -> None:
        now, then = _plain(self.settings), state["settings"]
        changed = sorted(key for key in {*now, *then} if now.get(key) != then.get(key) and key not in _MAY_CHANGE)
        if changed:
            listed = "; ".join(f"{key}: {then.get(key)} then, {now.get(key)} now" for key in changed)
            raise TrainError(f"--resume: expected the config of the run, found other values; {listed}; restore them")
        self.optimizer.load(state["optimizer"])
        self.epoch, self._spent = int(state["epoch"]), float(state["spent"])
        logger.info("going on after epoch %d, step %d", self.epoch, self.optimizer.step)


def _plain(settings: TrainSettings) -> dict[str, Any]:
    """Flatten the settings to plain values by dotted key."""
    flat = {}
    for name, value in dataclasses.asdict(settings).items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": list(one) if isinstance(one, tuple) else one for key, one in value.items()}
        elif name != "folder":
            flat[name] = value
    return flat
