/** The Basic credentials of an address that names a user. */
export function basicOf({ username, password }: URL): string | undefined {
  if (!username) return undefined;
  const pair = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return `Basic ${Buffer.from(pair).toString('base64')}`;
}
