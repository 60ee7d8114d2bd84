import { randomUUID } from 'node:crypto';
import { Body, Controller, Get, HttpException, Inject, Module, Param, Post } from '@nestjs/common';
import {
  type Caller,
  CurrentCaller,
  Describe,
  definePlugin,
  defineSubAgent,
  defineTool,
  type PluginDatabase,
  RawBody,
  sharedKey,
} from '@sibyl/plugin-kit';
import { defineTable, type TableTypes, text } from '@sibyl/plugin-kit/tables';
import { OracleError } from '@sibyl/protocol';
import { z } from 'zod';

export const NOTE_COUNT = sharedKey<number>('noteCount');

const NewNote = z.strictObject({ text: z.string().trim().min(1).max(100) });

const pages = defineTable(
  'notes_pages',
  { owner: text(), id: text(), text: text() },
  { key: ['owner', 'id'] },
);

type NoteTables = TableTypes<readonly [typeof pages]>;

class Notes {
  constructor(private readonly database: PluginDatabase<NoteTables>) {}

  async add(owner: string, text: string): Promise<void> {
    await this.database.write((tables) =>
      tables.insertInto('notes_pages').values({ owner, id: randomUUID(), text }).execute(),
    );
  }

  async list(owner: string): Promise<string[]> {
    const rows = await this.database.tables
      .selectFrom('notes_pages')
      .select('text')
      .where('owner', '=', owner)
      .execute();
    return rows.map(({ text }) => text);
  }
}

@Controller('notes')
class NotesController {
  constructor(@Inject(Notes) private readonly notes: Notes) {}

  @Get()
  @Describe({ summary: 'The notes of the caller' })
  async list(@CurrentCaller() { did }: Caller) {
    return { notes: await this.notes.list(did) };
  }

  @Get('about')
  @Describe({ summary: 'What this is' })
  about() {
    return { about: 'notes' };
  }

  @Get('by-number/:number')
  @Describe({ summary: 'One note' })
  async one(@CurrentCaller() { did }: Caller, @Param('number') number: string) {
    const note = (await this.notes.list(did))[Number(number)];
    if (note === undefined) throw new HttpException('No such note', 404);
    return { note };
  }

  @Post()
  @Describe({ summary: 'Add a note', status: 201 })
  async add(
    @CurrentCaller() { did }: Caller,
    @Body({ schema: NewNote }) { text }: z.infer<typeof NewNote>,
    @RawBody() raw: Buffer,
  ) {
    await this.notes.add(did, text);
    return { bytes: raw.length };
  }
}

@Module({})
class NotesModule {}

const tools = (notes: Notes) => [
  defineTool({
    name: 'add_note',
    description: 'Adds a note that the user can read again later',
    inputSchema: NewNote,
    run: async ({ text }, { user, emit, sessionState }) => {
      await notes.add(user.did, text);
      const count = Number((await sessionState.get('count')) ?? 0) + 1;
      await sessionState.set('count', count);
      emit.renderComponent({ eventId: 'n', componentName: 'Note', status: 'done' });
      return { count };
    },
  }),
  defineTool({
    name: 'sum_up_notes',
    description: 'Sums up all notes of the user in one sentence',
    inputSchema: { type: 'object', properties: {} },
    run: async (_, { user, llm }) => {
      const prompt = (await notes.list(user.did)).join('\n');
      return (await llm.get('utility').generate({ prompt })).text;
    },
  }),
];

/** A plugin with something of everything. */
export const notesPlugin = definePlugin({
  name: 'notes',
  version: '1.2.3',
  manifest: {
    title: 'Notes',
    summary: 'Keeps notes',
    whenToUse: ['the user wants something noted'],
    category: 'test',
  },
  configSchema: z.object({
    NOTES_LIMIT: z.coerce.number().default(3).describe('Notes a user may have in one session'),
  }),
  autoDetect: () => true,
  autoDetectHint: 'it always loads',
  tables: [pages],
  setup: ({ database }) => new Notes(database),
  getTools: ({ services: notes }) => tools(notes),
  getRequestTools: ({ request }) =>
    request.attachments.length === 0
      ? []
      : [
          defineTool({
            name: 'count_files',
            description: 'Counts the files that came with the message',
            inputSchema: z.object({}),
            run: (_, turn) => turn.request.attachments.length,
          }),
        ],
  getSubAgents: ({ services: notes }) => [
    defineSubAgent({
      name: 'archivist',
      description: 'Looks through old notes',
      prompt: ({ user }) => `You look after the notes of ${user.did}.`,
      tools: tools(notes),
    }),
  ],
  getMiddlewares: ({ config }) => [
    {
      name: 'notes-limit',
      wrapModel: (request, next, turn) =>
        next({ ...request, system: `${request.system}\nNotes: ${turn.shared.get(NOTE_COUNT)}` }),
      wrapTool: async (call, next, { sessionState }) => {
        const count = Number((await sessionState.get('count')) ?? 0);
        if (call.name === 'add_note' && count >= config.NOTES_LIMIT)
          throw new OracleError('forbidden', { message: 'No more notes in this session' });
        return next({ ...call, input: { text: 'changed by the middleware' } });
      },
    },
  ],
  getSharedState: ({ services: notes }) =>
    NOTE_COUNT.sharePerTurn(async ({ user }) => (await notes.list(user.did)).length),
  getNestModules: ({ services: notes }) => [
    {
      module: NotesModule,
      controllers: [NotesController],
      providers: [{ provide: Notes, useValue: notes }],
    },
  ],
  getAuthExcludedRoutes: () => ['/notes/about'],
  getMessageGate: ({ logger }) => ({
    admit: async ({ length }) => {
      if (length > 100) throw new OracleError('forbidden', { message: 'Too long for me' });
      return { settle: async (used) => logger.info({ used }, 'settled') };
    },
  }),
});
