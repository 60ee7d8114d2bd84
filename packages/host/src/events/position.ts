/** Where a session's events stand: a frame of the run that is its `turn`. */
export interface Position {
  readonly turn: number;
  readonly seq: number;
}

/** Before the first event of a session. */
export const BEFORE_ALL: Position = { turn: 0, seq: 0 };

/** After all that a turn tells, however far a client was in it. */
export const endOf = (turn: number): Position => ({ turn, seq: 10 ** 12 });

export const positionText = ({ turn, seq }: Position): string => `${turn}.${seq}`;

/** Reads what a client says it has seen; undefined for anything that no position looks like. */
export function readPosition(text: unknown): Position | undefined {
  const [, turn, seq] = (typeof text === 'string' && /^(\d{1,15})\.(\d{1,15})$/.exec(text)) || [];
  return turn === undefined ? undefined : { turn: Number(turn), seq: Number(seq) };
}

export const isAfter = (a: Position, b: Position): boolean =>
  a.turn > b.turn || (a.turn === b.turn && a.seq > b.seq);
