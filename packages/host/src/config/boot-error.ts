/** One thing that keeps the host from starting, and what the operator can do about it. */
export interface BootFault {
  /** A variable and whose it is, such as `PORT (host)`, or what else is wrong, such as `plugin slack`. */
  readonly subject: string;
  readonly problem: string;
  readonly remedy: string;
}

/** All that keeps the host from starting, in one message for the operator. */
export class BootError extends Error {
  override readonly name = 'BootError';

  constructor(faults: readonly BootFault[]) {
    const count = faults.length === 1 ? 'one thing is' : `${faults.length} things are`;
    super(`The host cannot start, ${count} wrong:\n${faults.map(lineOf).join('\n')}`);
  }
}

const lineOf = ({ subject, problem, remedy }: BootFault) =>
  `  ${subject}: ${problem}\n      → ${remedy}`;

/** Throws all faults together, if there are any. */
export function assertNoFaults(faults: readonly BootFault[]): void {
  if (faults.length > 0) throw new BootError(faults);
}
