import { resolve } from 'node:path';
import { type Command, CommandError, UsageError } from '../command.js';
import { loadHost } from '../environment.js';
import { type Output, table } from '../terminal.js';

/** Copies the database and the key to a folder. */
export const backup: Command = {
  name: 'backup',
  summary: 'Save the database and the key of your oracle in a new folder',
  usage: ['<folder>'],
  details:
    'Run it where the oracle runs, which may keep running. Reads what the environment and .env in this folder name: SQLite or PostgreSQL. Files in S3-compatible storage are not included. Keep the folder secret: it has the key.',
  async run({ args: [folder], output }) {
    if (!folder) throw new UsageError('Name the folder to create');
    const { backUpStore } = await loadStoreTasks(output);
    const copying = backUpStore(resolve(folder), undefined, showProgress(output));
    const saved = await explain(output.progress('Copying', copying));
    const key = saved.hasKey ? 'with its key' : 'without its key, which a variable has';
    output.result(saved, `Saved ${saved.oracle} in ${saved.folder}, ${key}`);
    return 0;
  },
};

/** Puts a backup back. */
export const restore: Command = {
  name: 'restore',
  summary: 'Put a backup into an empty database and data folder',
  usage: ['<folder>'],
  details:
    'Stop the oracle first. Writes to what the environment and .env in this folder name; a backup of SQLite can be restored to PostgreSQL, and the reverse. A database that is not empty is refused, and so is a damaged backup.',
  async run({ args: [folder], output }) {
    if (!folder) throw new UsageError('Name the folder of the backup');
    const { restoreStore } = await loadStoreTasks(output);
    const restored = await explain(output.progress('Copying', restoreStore(resolve(folder))));
    const { oracle, createdAt, removed } = restored;
    const since = removed
      ? `Removed again what was removed since then: ${removed.erasedUsers} erased users, ${removed.revocations} revoked delegations and keys.`
      : 'DATA_DIR has no removals.jsonl: users that were erased, and delegations and keys that were revoked since then are back. To remove them, restore again into a folder with that file.';
    output.result(restored, `Restored ${oracle}, saved ${createdAt}\n${since}`);
    return 0;
  },
};

/** From SQLite to PostgreSQL. */
export const migrate: Command = {
  name: 'migrate',
  summary: 'Copy your oracle from SQLite to PostgreSQL',
  usage: [''],
  details: [
    'Stop the oracle first. DATA_DIR names the folder with the SQLite file, DATABASE_URL an empty PostgreSQL database.',
    'Number and content of the rows of every table are compared before anything is committed. The SQLite file stays as it is. Afterwards start the oracle with DATABASE_URL and the same key.',
  ].join('\n'),
  async run({ output }) {
    const { migrateStore } = await loadStoreTasks(output);
    const { tables } = await explain(output.progress('Copying', migrateStore()));
    const rows = tables.map((each) => [each.table, String(each.rows), each.hash.slice(0, 12)]);
    const total = tables.reduce((sum, each) => sum + each.rows, 0);
    output.result(
      { tables },
      `${table(rows)}\n${total} rows copied and verified. Start the oracle with DATABASE_URL; its key stays the same.`,
    );
    return 0;
  },
};

const SHOWN_MS = 2_000;

/** Writes how much is done, but not too often. */
function showProgress(output: Output): (done: number) => void {
  let shownAt = performance.now();
  return (done) => {
    if (performance.now() - shownAt < SHOWN_MS) return;
    shownAt = performance.now();
    output.note(output.dim(`Copying… ${Math.floor(done * 100)} %`));
  };
}

const loadStoreTasks = (output: Output) => output.progress('Loading', loadHost());

async function explain<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (cause) {
    throw new CommandError((cause as Error).message, { cause });
  }
}
