"""Logs of training programs (`--log FILE.jsonl`)."""
import json
import pathlib


class Log:
    """settings: of the run and of the compile. steps, evaluations: one dict for each line, in order. notes: sentences."""

    def __init__(self, settings, steps, evaluations, notes):
        self.settings, self.steps, self.evaluations, self.notes = settings, steps, evaluations, notes

    def column(self, figure):
        """(steps, values) of one figure, such as "loss" or "val_loss"."""
        rows = [row for row in (*self.steps, *self.evaluations) if figure in row]
        return [row["step"] for row in rows], [row[figure] for row in rows]


def read_log(path):
    """Reads a log; of a run that went on from a checkpoint, what was trained again counts once. ValueError names a line that is
    no JSON, but for the last, which a killed run may have left incomplete."""
    settings, steps, evaluations, notes = {}, {}, {}, []
    lines = pathlib.Path(path).read_text().splitlines()
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise ValueError(f"{path}:{number}: {error}") from error
        if "settings" in line:
            settings = line["settings"]
        elif "resumed" in line:
            done = line["resumed"]["step"]
            steps = {step: row for step, row in steps.items() if step <= done}
            evaluations = {step: row for step, row in evaluations.items() if step <= done}
        elif "val_loss" in line:
            evaluations[line["step"]] = line
        elif "loss" in line:
            steps[line["step"]] = line
        elif "note" in line:
            notes.append(line["note"])
    return Log(settings, list(steps.values()), list(evaluations.values()), notes)
