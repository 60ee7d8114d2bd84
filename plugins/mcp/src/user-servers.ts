import { OracleError, type PluginDatabase, type Secrets } from '@sibyl/plugin-kit';
import { bigint, defineTable, type TableTypes, text } from '@sibyl/plugin-kit/tables';
import { HttpUrl } from '@sibyl/protocol';
import { z } from 'zod';
import { HttpServer, ServerName } from './config.js';
import { isKeyChanged } from './grant.js';

const MAX_HEADERS = 10;
/** As JSON, which is stored as one secret. */
const MAX_HEADERS_LENGTH = 16_000;

/** Body of `POST /mcp/servers`. */
export const AddServer = z
  .strictObject({
    name: ServerName,
    url: HttpUrl,
    headers: z
      .record(z.string().regex(/^[\w-]{1,100}$/), z.string().regex(/^[\x20-\x7e]{0,4000}$/))
      .refine((headers) => Object.keys(headers).length <= MAX_HEADERS, `at most ${MAX_HEADERS}`)
      .refine(
        (headers) => JSON.stringify(headers).length <= MAX_HEADERS_LENGTH,
        `at most ${MAX_HEADERS_LENGTH} characters together, as JSON`,
      )
      .optional()
      .describe('Sent with each request, such as an API key; stored encrypted'),
  })
  .meta({ id: 'AddMcpServer' });
export type AddServer = z.infer<typeof AddServer>;

/** A server that a user added. */
export interface UserServer {
  readonly name: string;
  readonly server: HttpServer;
  /** Why it cannot be used. */
  readonly problem?: OracleError;
}

export const userServers = defineTable(
  'mcp_servers',
  { owner: text(), name: text(), url: text(), created_at: bigint() },
  { key: ['owner', 'name'] },
);

type UserServerTables = TableTypes<readonly [typeof userServers]>;

interface UserServersDeps {
  readonly database: PluginDatabase<UserServerTables>;
  readonly secrets: (owner: string) => Secrets;
  readonly maxPerUser: number;
}

const headersName = (server: string) => `headers:${server}`;

/** The servers that users added. Each belongs to its user; none is ever started as a process. */
export class UserServers {
  constructor(private readonly deps: UserServersDeps) {}

  async list(owner: string): Promise<UserServer[]> {
    const rows = await this.deps.database.tables
      .selectFrom('mcp_servers')
      .select(['name', 'url'])
      .where('owner', '=', owner)
      .orderBy('name')
      .execute();
    return Promise.all(rows.map((row) => this.toServer(owner, row)));
  }

  async find(owner: string, name: string): Promise<UserServer | undefined> {
    const row = await this.deps.database.tables
      .selectFrom('mcp_servers')
      .select(['name', 'url'])
      .where('owner', '=', owner)
      .where('name', '=', name)
      .executeTakeFirst();
    return row && this.toServer(owner, row);
  }

  /** Adds a server, or its headers: a host may have died before it had stored them. */
  async add(owner: string, { name, url, headers = {} }: AddServer): Promise<void> {
    const isNew = await this.insert(owner, { name, url });
    const hasHeaders = Object.keys(headers).length > 0;
    if (!isNew && !(hasHeaders && (await this.lacksHeaders(owner, name)))) throw nameTaken(name);
    await this.deps
      .secrets(owner)
      .set(headersName(name), hasHeaders ? JSON.stringify(headers) : undefined)
      .catch(async (error) => {
        // Without its headers it would be another server.
        if (isNew) await this.remove(owner, name);
        throw error;
      });
  }

  /** False if there was the same one; throws if there was another one of this name, or if there are too many. */
  private insert(owner: string, { name, url }: AddServer): Promise<boolean> {
    const { database, maxPerUser } = this.deps;
    return database.writeFor(owner, async (tables) => {
      const known = await tables
        .selectFrom('mcp_servers')
        .select('url')
        .where('owner', '=', owner)
        .where('name', '=', name)
        .executeTakeFirst();
      if (known?.url === url) return false;
      if (known) throw nameTaken(name);
      await tables
        .insertInto('mcp_servers')
        .values({ owner, name, url, created_at: Date.now() })
        .execute();
      const { count } = await tables
        .selectFrom('mcp_servers')
        .select(({ fn }) => fn.countAll().as('count'))
        .where('owner', '=', owner)
        .executeTakeFirstOrThrow();
      if (Number(count) > maxPerUser)
        throw new OracleError('bad_request', {
          message: `You have ${maxPerUser} servers, which is the limit: remove one first`,
        });
      return true;
    });
  }

  private async lacksHeaders(owner: string, name: string): Promise<boolean> {
    const { server, problem } = (await this.find(owner, name)) ?? {};
    return !problem && Object.keys(server?.headers ?? {}).length === 0;
  }

  /** Whether there was one. */
  async remove(owner: string, name: string): Promise<boolean> {
    const { numDeletedRows } = await this.deps.database.write((tables) =>
      tables
        .deleteFrom('mcp_servers')
        .where('owner', '=', owner)
        .where('name', '=', name)
        .executeTakeFirstOrThrow(),
    );
    await this.deps.secrets(owner).set(headersName(name), undefined);
    return numDeletedRows > 0n;
  }

  private async toServer(
    owner: string,
    { name, url }: { readonly name: string; readonly url: string },
  ): Promise<UserServer> {
    try {
      const headers = await this.deps.secrets(owner).get(headersName(name));
      return { name, server: toHttpServer({ name, url, headers: JSON.parse(headers ?? '{}') }) };
    } catch (cause) {
      if (!isKeyChanged(cause)) throw cause;
      const message = `The headers of ${name} were encrypted with an earlier key of this oracle and cannot be read any more: remove the server and add it again`;
      const problem = new OracleError('key_changed', { message, cause });
      return { name, server: toHttpServer({ name, url }), problem };
    }
  }
}

/** A user's server, with the settings that only operators can change. */
export const toHttpServer = ({ url, headers = {} }: AddServer): HttpServer =>
  HttpServer.parse({ url, headers, oauth: true });

export const nameTaken = (name: string) =>
  new OracleError('bad_request', { message: `There is a server named ${name} already` });
