"""Many attempts in forks of a workspace; the best one is merged, as one entry."""

from pathlib import Path
from tempfile import TemporaryDirectory

from wink_workspace.attempts import AttemptContext, Attempts, LocalEngine, Score
from wink_workspace.workspace import Workspace


def attempt(context: AttemptContext) -> None:
    """Guess a number. A model would reserve its turns: ``with context.budget.turn() as turn``."""
    guess = context.random.randrange(100)
    with context.workspace.call("guess") as call:
        context.workspace.files.edit("answer.py", "ANSWER = 0", f"ANSWER = {guess}")
        call.result(f"guessed {guess}")


def score(fork: Workspace) -> Score:
    """How near the guess is; in a temporary fork, so nothing that it writes is kept."""
    guess = int(fork.files.read_bytes("answer.py").split(b"=")[1])
    return Score(-abs(guess - 42), passed=guess == 42)


def main() -> None:
    """Run six attempts in two processes, keep the best, and undo that."""
    with TemporaryDirectory() as folder:
        Path(folder, "answer.py").write_text("ANSWER = 0\n")
        with Workspace.temporary(folder) as workspace:
            attempts = Attempts(workspace, n=6, seed=7, engine=LocalEngine(workers=2))
            for result in attempts.run(attempt, score=score):
                print(result.number, result.outcome, result.score)
            assert len(attempts.results) == 6
            attempts.keep(attempts.best)
            assert workspace.files.read_bytes("answer.py") != b"ANSWER = 0\n"
            workspace.undo()
            assert workspace.files.read_bytes("answer.py") == b"ANSWER = 0\n"
            attempts.remove()


if __name__ == "__main__":
    main()
