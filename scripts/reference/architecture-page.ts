import { readFileSync } from 'node:fs';
import { folderDiagrams } from './folder-diagrams.ts';

export const ARCHITECTURE = 'docs/architecture.md';

/** The page as it is, with its diagrams drawn anew; each stands between comments that name it. */
export async function architecturePage(): Promise<string> {
  let text = readFileSync(ARCHITECTURE, 'utf8');
  for (const [name, diagram] of Object.entries(await folderDiagrams())) {
    const place = new RegExp(`(<!-- diagram ${name}[^>]*-->\n).*?(<!-- end -->)`, 's');
    if (!place.test(text)) throw new Error(`${ARCHITECTURE} has no place for the diagram ${name}`);
    text = text.replace(place, `$1\n\`\`\`mermaid\n${diagram}\n\`\`\`\n\n$2`);
  }
  return text;
}
