// In place of the program that reads documents: it tries to read a file of the host, whose path is the kind of the document.
import { readFileSync } from 'node:fs';

process.on('message', ({ job }: { readonly job: { readonly kind: string } }) => {
  try {
    process.send?.({ type: 'failed', error: readFileSync(job.kind, 'utf8') });
  } catch (error) {
    process.send?.({ type: 'failed', error: (error as NodeJS.ErrnoException).code });
  }
});
