/** Where the oracle is: the page is served by it, one folder down. */
export const oracleAddress = (): string => new URL('..', location.href.split('#')[0]).href;

/** What the host tells the page beside what every client can ask. */
export interface PageSettings {
  /** The homeserver to upload files to; without it there are no attachments. */
  readonly matrixBaseUrl?: string;
}

export async function loadPageSettings(): Promise<PageSettings> {
  const response = await fetch(new URL('settings.json', location.href.split('#')[0]));
  return response.ok ? response.json() : {};
}
