/** What a look at one part has found. */
export interface Check {
  readonly state: 'ok' | 'off' | 'fault';
  readonly text: string;
  /** What to do about a fault. */
  readonly remedy?: string;
}
