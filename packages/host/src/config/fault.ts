/** One thing that is wrong with the environment, and what the operator can do about it. */
export interface Fault {
  readonly variable: string;
  readonly problem: string;
  readonly remedy: string;
}
