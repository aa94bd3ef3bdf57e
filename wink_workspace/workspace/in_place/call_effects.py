"""The effects of the running call on a directory that other programs change, too.

The effects also distinguish our bytes from those of others. A path without an effect holds what
the *base* has there; every other path holds what its last effect wrote. An effect is planned,
durably, before it happens, and confirmed afterwards. In between its path may hold either state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wink_workspace.filesystem import WorkspacePath
from wink_workspace.ledger import Effect, EffectJournal, ObjectStore, TreeEntry, build, entry_at
from wink_workspace.workspace.files.disk_entries import same_content


class CallEffects:
    """The effects since ``begin``, in order.

    Args:
        store: The store of the trees.
        journal: The record that survives the process.
        base: The root of the directory's state at the beginning.
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
        """Forget all effects: the directory now holds *base*, as far as is known.

        Raises:
            LedgerError: If the journal cannot be cleared; nothing changed then.
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
        """The number of effects."""
        return len(self._effects)

    @property
    def last(self) -> Effect | None:
        """The last effect."""
        return self._effects[-1] if self._effects else None

    def extends(self, position: int, last: Effect | None) -> bool:
        """Whether the first *position* effects, up to *last*, are still the same."""
        if position == 0:
            return True
        return position <= len(self._effects) and self._effects[position - 1] is last

    def since(self, position: int) -> Sequence[Effect]:
        """The effects from *position* on."""
        return self._effects[position:]

    def root(self) -> str:
        """The tree of the directory if no other program changed it."""
        final = {effect.path: effect.after for effect in self._effects}
        return build(self._store, self.base, final) if final else self.base

    def states(self, path: WorkspacePath) -> Sequence[TreeEntry | None]:
        """The states that *path* may have by our effects; the last one if all are confirmed."""
        states = self._states.get(path)
        return (entry_at(self._store, self.base, path),) if states is None else states

    def is_ours(self, path: WorkspacePath, found: TreeEntry | None) -> bool:
        """Whether *found*, at *path*, is a state that we know."""
        return any(same_content(found, state) for state in self.states(path))

    # Adding

    def begin_file(self, path: WorkspacePath) -> None:
        """Record that an unfinished file is about to be at *path*; raises ``LedgerError``."""
        self._is_clear = False
        self._journal.add_unfinished(path)

    def plan(self, effects: Sequence[Effect]) -> None:
        """Record the next effects. If this raises (``LedgerError``), they must not happen."""
        self._is_clear = False
        self._journal.add(effects)
        for effect in effects:
            self._effects.append(effect)
            self._states[effect.path] = [*self.states(effect.path), effect.after]

    def observe(self, effects: Iterable[Effect]) -> None:
        """Add effects of another program, which a recovery does not undo."""
        for effect in effects:
            self._effects.append(effect)
            self._states[effect.path] = [effect.after]

    def confirm(self, effects: Iterable[Effect]) -> None:
        """Record that these effects happened."""
        for effect in effects:
            self._states[effect.path] = [effect.after]

    def retract(self, effects: Iterable[Effect]) -> None:
        """Record that these effects, the last ones, did not happen."""
        gone = {id(effect): effect for effect in effects}
        self._effects = [effect for effect in self._effects if id(effect) not in gone]
        for effect in gone.values():
            self._states[effect.path] = [effect.before]

    def forget_since(self, position: int) -> None:
        """Record that every path is as it was at *position*."""
        undone = {effect.path for effect in self._effects[position:]}
        del self._effects[position:]
        for path in undone:
            self._states.pop(path)
        for effect in self._effects:
            if effect.path in undone:
                self._states[effect.path] = [effect.after]

    def load_journal(self) -> Sequence[WorkspacePath]:
        """Load the unconfirmed effects of a dead process; the paths of its unfinished files."""
        planned = self._journal.read()
        self._is_clear = not (planned.effects or planned.unfinished)
        self._effects = list(planned.effects)
        for effect in planned.effects:
            states = self._states.setdefault(effect.path, [])
            states += [effect.before, effect.after]
        return tuple(planned.unfinished)
