import { ARCHITECTURE, architecturePage } from './reference/architecture-page.ts';
import { configurationPage } from './reference/configuration-page.ts';
import { errorsPage } from './reference/errors-page.ts';
import { eventsPage } from './reference/events-page.ts';

/** The pages of `docs/` that are made from the code, wholly or in part: path → text. */
export async function referencePages(): Promise<Readonly<Record<string, string>>> {
  return {
    [ARCHITECTURE]: await architecturePage(),
    'docs/configuration.md': configurationPage(),
    'docs/errors.md': errorsPage(),
    'docs/events.md': eventsPage(),
  };
}
