/** How a path is cut: `node` decodes first and keeps a trailing slash, as the node does. */
export type PathReading = 'node' | 'exact';

/** The decoded segments of a raw path; undefined if it is not one. */
export function splitPath(path: string, reading: PathReading): string[] | undefined {
  if (!path.startsWith('/')) return undefined;
  try {
    if (reading === 'node') return decodeURIComponent(path).slice(1).split('/');
    const segments = path.slice(1).split('/');
    if (segments.length > 1 && segments.at(-1) === '') segments.pop();
    return segments.map((segment) =>
      segment.includes('%') ? decodeURIComponent(segment) : segment,
    );
  } catch {
    return undefined;
  }
}
