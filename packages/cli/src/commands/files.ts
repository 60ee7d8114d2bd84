import { basename } from 'node:path';
import { type Call, type Command, findAction, UsageError } from '../command.js';
import { type OpenOracle, openFile, openOracle, saveBody, writeBody } from '../environment.js';
import { plainText, table } from '../terminal.js';

const LISTED = 100;

/** Your files at an oracle. */
export const files: Command = {
  name: 'files',
  summary: 'Upload, list, download or delete your files at an oracle',
  usage: [
    'upload <path> [url]',
    '[list] [url]',
    'download <file id> [url] [--output <path>]',
    'delete <file id> [url]',
  ],
  details:
    'The oracle reads the text of documents, so that you can ask about them. Only you can read, search and delete your files.',
  options: {
    output: {
      type: 'string',
      value: 'path',
      summary:
        'With download: where to write; default: the name of the file. - for standard output',
    },
  },
  async run(call) {
    const [action, ...rest] = call.args;
    const run = findAction(actions, action);
    const subject = action === 'list' ? '' : rest.shift();
    if (subject === undefined)
      throw new UsageError(action === 'upload' ? 'Name the file' : 'Name the id of the file');
    return run(await openOracle(rest[0], call.output), call, subject);
  },
};

async function upload({ client }: OpenOracle, { output }: Call, path: string): Promise<number> {
  const content = await openFile(path);
  const sending = client.files.upload(content, { name: basename(path) });
  const file = await output.progress('Uploading', sending);
  output.result(file, plainText(`${file.fileId}  ${file.name}`));
  return 0;
}

async function list({ client }: OpenOracle, { output }: Call): Promise<number> {
  const page = await client.files.list({ limit: LISTED });
  const rows = page.files.map(({ fileId, name, size, mediaType, text }) => [
    fileId,
    name,
    formatSize(size),
    mediaType,
    text.status === 'failed' ? `no text: ${text.error}` : text.status,
  ]);
  const used = `${formatSize(page.usedBytes)} of ${formatSize(page.maxBytes)} used`;
  const more = page.total > LISTED ? `The newest ${LISTED} of ${page.total}` : '';
  const text = rows.length > 0 ? table(rows) : 'You have no files';
  output.result(page, plainText([text, more, used].filter(Boolean).join('\n')));
  return 0;
}

async function download(
  { client }: OpenOracle,
  { output, options }: Call,
  fileId: string,
): Promise<number> {
  const { name } = await client.files.get(fileId);
  const response = await client.files.download(fileId);
  const path = String(options.output ?? basename(name));
  if (path === '-') {
    await writeBody(response.body, process.stdout, { name: 'download', end: false });
    return 0;
  }
  // An oracle must not replace files here by choosing a name.
  const isReplacing = options.output !== undefined;
  await saveBody(response, path, { name: 'download', isReplacing });
  output.result({ fileId, path }, plainText(`Written to ${path}`));
  return 0;
}

async function remove({ client }: OpenOracle, { output }: Call, fileId: string): Promise<number> {
  await client.files.delete(fileId);
  output.result({ ok: true, fileId }, 'Deleted');
  return 0;
}

const actions = { upload, list, download, delete: remove };

function formatSize(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const kilobytes = bytes / 1024;
  return kilobytes < 1024 ? `${kilobytes.toFixed(0)} kB` : `${(kilobytes / 1024).toFixed(1)} MB`;
}
