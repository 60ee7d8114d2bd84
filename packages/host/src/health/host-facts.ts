/** What the host tells about itself. */
export class HostFacts {
  constructor(
    readonly version: string,
    readonly features: readonly string[],
  ) {}
}
