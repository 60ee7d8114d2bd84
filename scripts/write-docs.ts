// Writes the pages of docs/ that are made from the code.
import { writeFileSync } from 'node:fs';
import { referencePages } from './reference-pages.ts';

for (const [path, text] of Object.entries(await referencePages())) writeFileSync(path, text);
