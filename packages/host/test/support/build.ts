import { buildIfChanged } from '../../../../scripts/build.ts';

/** Has the host built once, before any test runs it as a process. */
export async function setup(): Promise<void> {
  if ((await buildIfChanged()) !== 0) throw new Error('The build failed; see above');
}
