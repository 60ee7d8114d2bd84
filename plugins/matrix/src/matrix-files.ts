import type { Middleware, TurnContext } from '@sibyl/plugin-kit';
import type { MatrixConfig } from './config.js';
import type { FileReader, ReadFile } from './files/read-files.js';
import { describeEarlier, type EarlierFile, keepFitting, withFiles } from './files/show-files.js';
import type { RoomDirectory } from './rooms/room-directory.js';

const KEPT = 'files';

/** Under the limit the host sets a middleware, so that the model is told what is missing. */
const PATIENCE_MS = 12_000;

/** The files of one turn, read once, when the first model is asked. */
export class TurnFiles {
  #reading: Promise<ReadFile[]> | undefined;

  constructor(private readonly readAll: () => Promise<ReadFile[]>) {}

  /** Nothing if they are not there in time; a later model call of the turn may find them. */
  async read(): Promise<ReadFile[] | undefined> {
    this.#reading ??= this.readAll();
    const overdue = Promise.withResolvers<undefined>();
    const patience = setTimeout(overdue.resolve, PATIENCE_MS, undefined);
    try {
      return await Promise.race([this.#reading, overdue.promise]);
    } finally {
      clearTimeout(patience);
    }
  }
}

interface Needs {
  readonly rooms: RoomDirectory | undefined;
  readonly reader: FileReader;
}

/** What a turn shares: its files, not read yet. */
export function turnFiles(turn: TurnContext<MatrixConfig>, needs: Needs): TurnFiles {
  const { rooms, reader } = needs;
  return new TurnFiles(async () => {
    if (turn.request.attachments.length === 0) return [];
    const ownRoom = await rooms?.find(turn.user.did);
    const files = await reader.read(turn, ownRoom);
    for (const file of files) {
      if ('fault' in file) turn.warn('attachment_unreadable', `${file.name}: ${file.fault}`);
    }
    await keepTexts(turn, files);
    return files;
  });
}

/** Shows the model the files of the message, and what those of earlier messages said. */
export const filesMiddleware: Middleware = {
  name: 'matrix-files',
  async beforeModel(request, turn) {
    if (request.agent !== 'main') return undefined;
    const earlier = earlierFiles(await turn.sessionState.get(KEPT));
    const files = (await (turn.shared.matrixFiles as TurnFiles).read()) ?? overdueFiles(turn);
    const fresh = new Set(files.map(({ name }) => name));
    const known = earlier.filter(({ name }) => !fresh.has(name));
    if (files.length === 0 && known.length === 0) return undefined;
    return {
      messages: withFiles(request, files),
      ...(known.length > 0 && { system: `${request.system}\n\n${describeEarlier(known)}` }),
    };
  },
};

function overdueFiles(turn: TurnContext): ReadFile[] {
  const fault = 'it is still being read';
  return turn.request.attachments.map(({ filename: name, mimetype: type }) => {
    turn.warn('attachment_unreadable', `${name}: ${fault}`);
    return { name, type, fault };
  });
}

async function keepTexts(turn: TurnContext, files: readonly ReadFile[]): Promise<void> {
  const texts = files.flatMap((file) =>
    'text' in file ? { name: file.name, text: file.text } : [],
  );
  if (texts.length === 0) return;
  const earlier = earlierFiles(await turn.sessionState.get(KEPT));
  await turn.sessionState.set(KEPT, keepFitting([...earlier, ...texts]));
}

const earlierFiles = (kept: unknown): EarlierFile[] =>
  Array.isArray(kept) ? (kept as EarlierFile[]) : [];
