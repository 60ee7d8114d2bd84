/** How much the other side may still send; it is allowed more when half of it is used. */
export class ReceiveWindow {
  private used = 0;

  constructor(private readonly bytes: number) {}

  /** Counts what came; says how much to allow again. */
  take(bytes: number): number {
    this.used += bytes;
    if (this.used <= this.bytes / 2) return 0;
    const again = this.used;
    this.used = 0;
    return again;
  }
}
