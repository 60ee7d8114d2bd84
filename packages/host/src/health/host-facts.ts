/** Where else to go, as the plugins tell: under the keys `page` and `gateway` of what they share. */
interface Places {
  readonly page?: string;
  readonly gateway?: string;
}

/** What the host tells about itself. */
export class HostFacts {
  readonly places: Places;

  constructor(
    readonly version: string,
    readonly features: readonly string[],
    shared: Readonly<Record<string, unknown>>,
  ) {
    this.places = { ...placeOf(shared, 'page'), ...placeOf(shared, 'gateway') };
  }
}

function placeOf(shared: Readonly<Record<string, unknown>>, key: keyof Places): Places {
  const place = shared[key];
  return typeof place === 'string' ? { [key]: place } : {};
}
