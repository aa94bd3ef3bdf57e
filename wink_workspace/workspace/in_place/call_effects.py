"""What the call under way did to a directory that is not ours alone.

Beside what was done, this is what tells our bytes from other people's: a path that nothing was
done to holds what the *base* has there, every other one what was last done to it. An effect is
planned, durably, before it happens, and confirmed afterwards; in between its path may hold the
one or the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wink_workspace.filesystem import WorkspacePath
from wink_workspace.ledger import Effect, EffectJournal, ObjectStore, TreeEntry, build, entry_at
from wink_workspace.workspace.contents import same_content

__all__ = ["CallEffects"]


class CallEffects:
    """The effects since ``begin``, in their order.

    Args:
        store: Where the trees are.
        journal: What survives the process.
        base: The root of what the directory held when it began.
    """

    def __init__(self, store: ObjectStore, journal: EffectJournal, *, base: str) -> None:
        self.base = base
        self.epoch = 0
        self._store = store
        self._journal = journal
        self._effects: list[Effect] = []
        self._states: dict[WorkspacePath, list[TreeEntry | None]] = {}
        self._is_clear = False

    def begin(self, base: str) -> None:
        """Forget everything: the directory now holds *base*, as far as we know.

        Raises:
            LedgerError: If the journal cannot be cleared; then nothing changed.
        """
        if not self._is_clear:
            self._journal.clear()
            self._is_clear = True
        if self._effects or base != self.base:
            self.epoch += 1
        self.base = base
        self._effects.clear()
        self._states.clear()

    @property
    def position(self) -> int:
        """How many effects there are."""
        return len(self._effects)

    @property
    def last(self) -> Effect | None:
        """The last of them."""
        return self._effects[-1] if self._effects else None

    def is_ahead_of(self, position: int, last: Effect | None) -> bool:
        """Whether there were *position* effects when *last* was the last, and only more since."""
        if position == 0:
            return True
        return position <= len(self._effects) and self._effects[position - 1] is last

    def since(self, position: int) -> Sequence[Effect]:
        """The effects from *position* on."""
        return self._effects[position:]

    def root(self) -> str:
        """The tree of what the directory holds if nobody else touched it."""
        final = {effect.path: effect.after for effect in self._effects}
        return build(self._store, self.base, final) if final else self.base

    def states(self, path: WorkspacePath) -> Sequence[TreeEntry | None]:
        """What *path* may hold of ours; the last is what it holds if nothing is in doubt."""
        states = self._states.get(path)
        return (entry_at(self._store, self.base, path),) if states is None else states

    def is_ours(self, path: WorkspacePath, found: TreeEntry | None) -> bool:
        """Whether *found*, at *path*, is what we know to be there."""
        return any(same_content(found, state) for state in self.states(path))

    # Adding

    def begin_file(self, path: WorkspacePath) -> None:
        """Note that an unfinished file is about to be at *path*; raises ``LedgerError``."""
        self._is_clear = False
        self._journal.add_unfinished(path)

    def plan(self, effects: Sequence[Effect]) -> None:
        """Note what is about to be done; if this raises (``LedgerError``), it must not be."""
        self._is_clear = False
        self._journal.add(effects)
        for effect in effects:
            self._effects.append(effect)
            self._states[effect.path] = [*self.states(effect.path), effect.after]

    def confirm(self, effects: Iterable[Effect]) -> None:
        """Take for certain that these happened."""
        for effect in effects:
            self._states[effect.path] = [effect.after]

    def retract(self, effects: Iterable[Effect]) -> None:
        """Take for certain that these, the last ones, did not happen."""
        gone = {id(effect): effect for effect in effects}
        self._effects = [effect for effect in self._effects if id(effect) not in gone]
        for effect in gone.values():
            self._states[effect.path] = [effect.before]

    def forget_since(self, position: int) -> None:
        """Take for certain that all is as it was at *position*."""
        undone = {effect.path for effect in self._effects[position:]}
        del self._effects[position:]
        for path in undone:
            self._states.pop(path)
        for effect in self._effects:
            if effect.path in undone:
                self._states[effect.path] = [effect.after]

    def recall(self) -> Sequence[WorkspacePath]:
        """Take up what a dead process noted; where it had begun files. All of it is in doubt."""
        planned = self._journal.read()
        self._is_clear = not (planned.effects or planned.unfinished)
        self._effects = list(planned.effects)
        for effect in planned.effects:
            states = self._states.setdefault(effect.path, [])
            states += [effect.before, effect.after]
        return tuple(planned.unfinished)
