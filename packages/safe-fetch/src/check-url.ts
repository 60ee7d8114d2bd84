import { SafeFetchError } from './safe-fetch-error.js';

/** Parses what is about to be asked and refuses what no request may ever name; who may do without TLS is for its address to say. */
export function checkUrl(input: string | URL): URL {
  const url = URL.parse(String(input));
  if (!url) throw new SafeFetchError('url_invalid', 'The URL is not valid; give an absolute one.');
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw new SafeFetchError('scheme_refused', `${url.protocol} is refused; use https.`);
  }
  if (url.username || url.password) {
    throw new SafeFetchError(
      'url_invalid',
      'The URL carries a user name or password; send credentials in a header.',
    );
  }
  return url;
}

/** Checks where a redirect leads; leaving TLS is refused whoever it leads to. */
export function checkRedirect(location: string, from: URL): URL {
  const target = URL.parse(location, from.href);
  if (!target) {
    throw new SafeFetchError('url_invalid', `${from.host} redirects to an invalid URL.`);
  }
  if (from.protocol === 'https:' && target.protocol === 'http:') {
    throw new SafeFetchError('scheme_refused', `${from.host} redirects from https to http.`);
  }
  return checkUrl(target);
}
