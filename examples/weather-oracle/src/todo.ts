import { definePlugin, defineRoute, OracleError, type PluginDatabase } from '@sibyl/plugin-kit';
import { defineTable, integer, type TableTypes, text } from '@sibyl/plugin-kit/tables';
import { z } from 'zod';

const NewTodo = z.strictObject({ text: z.string().trim().min(1).max(200) });
const TodoList = z.object({ todos: z.array(z.string()) }).meta({ id: 'TodoList' });

/** Its name begins with that of the plugin, and its key with the owner. */
const items = defineTable(
  'todo_items',
  { owner: text(), position: integer(), text: text() },
  { key: ['owner', 'position'] },
);

type TodoTables = TableTypes<readonly [typeof items]>;

class Todos {
  constructor(private readonly database: PluginDatabase<TodoTables>) {}

  async add(owner: string, text: string): Promise<void> {
    await this.database.writeFor(owner, async (tables) => {
      const last = await tables
        .selectFrom('todo_items')
        .select('position')
        .where('owner', '=', owner)
        .orderBy('position', 'desc')
        .limit(1)
        .executeTakeFirst();
      const position = (last?.position ?? 0) + 1;
      await tables.insertInto('todo_items').values({ owner, position, text }).execute();
    });
  }

  async list(owner: string): Promise<string[]> {
    const rows = await this.database.tables
      .selectFrom('todo_items')
      .select('text')
      .where('owner', '=', owner)
      .orderBy('position')
      .execute();
    return rows.map(({ text }) => text);
  }

  async clear(owner: string): Promise<void> {
    await this.database.write((tables) =>
      tables.deleteFrom('todo_items').where('owner', '=', owner).execute(),
    );
  }
}

/** A to-do list per user. */
export const todo = definePlugin({
  name: 'todo',
  version: '1.0.0',
  manifest: {
    title: 'To-do list',
    summary: "Manages the user's to-do list.",
    whenToUse: ['the user wants to remember a task, or asks what there is to do'],
    category: 'productivity',
    visibility: 'always',
  },
  configSchema: z.object({
    TODO_LIMIT: z.coerce.number().int().prefault('100').describe('Tasks that a user may have'),
  }),
  tables: [items],
  setup: ({ database }) => new Todos(database),
  getTools: ({ tool }) => [
    tool({
      name: 'add_todo',
      description: "Adds a task to the user's to-do list.",
      inputSchema: NewTodo,
      outputSchema: TodoList,
      async *run({ text }, { user, services: todos }) {
        yield `Adding ${text}`;
        await todos.add(user.did, text);
        return { todos: await todos.list(user.did) };
      },
    }),
    tool({
      name: 'clear_todos',
      description: "Deletes all tasks of the user's to-do list.",
      inputSchema: z.object({}),
      outputSchema: TodoList,
      // It runs only after the user has signed an approval of this call.
      needsApproval: true,
      run: async (_, { user, services: todos }) => {
        await todos.clear(user.did);
        return { todos: [] };
      },
    }),
  ],
  getSubAgents: ({ subAgent }) => [
    subAgent({
      name: 'planner',
      description: "Plans the user's day from the to-do list.",
      prompt: async ({ user, services: todos }) =>
        `Plan a day with these tasks:\n${(await todos.list(user.did)).join('\n')}`,
    }),
  ],
  getMiddlewares: ({ config, services: todos }) => [
    {
      name: 'todo-limit',
      wrapTool: async (call, next, { user }) => {
        const isFull = (await todos.list(user.did)).length >= config.TODO_LIMIT;
        if (call.name === 'add_todo' && isFull)
          throw new OracleError('forbidden', { message: 'The to-do list is full' });
        return next(call);
      },
    },
  ],
  routes: ({ services: todos }) => [
    defineRoute({
      method: 'POST',
      path: '/todos',
      summary: "Add a task to the caller's to-do list",
      body: NewTodo,
      reply: TodoList,
      handler: async ({ caller, body }) => {
        await todos.add(caller.did, body.text);
        return { todos: await todos.list(caller.did) };
      },
    }),
  ],
});
