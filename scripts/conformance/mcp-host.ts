// A host whose MCP server has the tools, resources and prompts that the conformance suite of MCP asks for.
import { setTimeout as delay } from 'node:timers/promises';
import {
  type CallToolResult,
  completable,
  type ElicitRequestFormParams,
  fromJsonSchema,
  type McpServer,
  ResourceTemplate,
} from '@modelcontextprotocol/server';
import { createOracleApp } from '@sibyl/host';
import { definePlugin } from '@sibyl/plugin-kit';
import { MCP_SERVER } from '@sibyl/plugin-mcp-server';
import { z } from 'zod';

const PNG =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const WAV = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=';

const text = (said: string) => ({ type: 'text', text: said }) as const;
const image = { type: 'image', data: PNG, mimeType: 'image/png' } as const;
const resource = (uri: string, mimeType: string, said: string) =>
  ({ type: 'resource', resource: { uri, mimeType, text: said } }) as const;

const RESULTS: Readonly<Record<string, CallToolResult['content']>> = {
  test_simple_text: [text('This is a simple text response for testing.')],
  test_image_content: [image],
  test_audio_content: [{ type: 'audio', data: WAV, mimeType: 'audio/wav' }],
  test_embedded_resource: [
    resource('test://embedded-resource', 'text/plain', 'This is an embedded resource content.'),
  ],
  test_multiple_content_types: [
    text('Multiple content types test:'),
    image,
    resource('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}'),
  ],
};

const USER_SCHEMA = {
  type: 'object' as const,
  properties: {
    username: { type: 'string' as const, description: "User's response" },
    email: { type: 'string' as const, description: "User's email address" },
  },
  required: ['username', 'email'],
};

type RequestedSchema = ElicitRequestFormParams['requestedSchema'];
const options = (values: readonly string[]) =>
  values.map((value) => ({ const: value, title: `Title of ${value}` }));
const CHOICES = ['option1', 'option2', 'option3'];
const VALUES = ['value1', 'value2', 'value3'];

const ELICITATIONS: Readonly<Record<string, RequestedSchema>> = {
  test_elicitation_sep1034_defaults: {
    type: 'object',
    properties: {
      name: { type: 'string', default: 'John Doe' },
      age: { type: 'integer', default: 30 },
      score: { type: 'number', default: 95.5 },
      status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
      verified: { type: 'boolean', default: true },
    },
  },
  test_elicitation_sep1330_enums: {
    type: 'object',
    properties: {
      untitledSingle: { type: 'string', enum: CHOICES },
      titledSingle: { type: 'string', oneOf: options(VALUES) },
      legacyEnum: {
        type: 'string',
        enum: ['opt1', 'opt2', 'opt3'],
        enumNames: ['Option One', 'Option Two', 'Option Three'],
      },
      untitledMulti: { type: 'array', items: { type: 'string', enum: CHOICES } },
      titledMulti: { type: 'array', items: { anyOf: options(VALUES) } },
    },
  },
};

function addTools(server: McpServer): void {
  for (const [name, content] of Object.entries(RESULTS))
    server.registerTool(name, { description: name }, () => ({ content }));
  server.registerTool('test_error_handling', { description: 'Fails.' }, () => {
    throw new Error('This tool intentionally returns an error for testing');
  });
  server.registerTool('test_tool_with_logging', { description: 'Logs.' }, async ({ mcpReq }) => {
    for (const said of ['started', 'processing data', 'completed']) {
      await mcpReq.log('info', `Tool execution ${said}`);
      await delay(50);
    }
    return { content: [text('Logged.')] };
  });
  server.registerTool('test_tool_with_progress', { description: 'Reports.' }, async (context) => {
    const { _meta, notify } = context.mcpReq;
    const progressToken = _meta?.progressToken ?? '';
    for (const progress of [0, 50, 100]) {
      const params = { progressToken, progress, total: 100 };
      if (progressToken !== '') await notify({ method: 'notifications/progress', params });
      await delay(50);
    }
    return { content: [text('Reported.')] };
  });
  const inputSchema = fromJsonSchema({
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    $defs: {
      address: {
        type: 'object',
        properties: { street: { type: 'string' }, city: { type: 'string' } },
      },
    },
    properties: { name: { type: 'string' }, address: { $ref: '#/$defs/address' } },
    additionalProperties: false,
  });
  const described = { description: 'Has a schema with references.', inputSchema };
  server.registerTool('json_schema_2020_12_tool', described, () => ({ content: [text('Ok.')] }));
}

/** Tools that ask the client; its answer may reach another host. */
function addAskingTools(server: McpServer): void {
  const sampling = { description: 'Samples.', inputSchema: z.object({ prompt: z.string() }) };
  server.registerTool('test_sampling', sampling, async ({ prompt }, { mcpReq }) => {
    const messages = [{ role: 'user' as const, content: text(prompt) }];
    const { content } = await mcpReq.requestSampling({ messages, maxTokens: 100 });
    return { content: [text(`LLM response: ${JSON.stringify(content)}`)] };
  });
  const eliciting = { description: 'Elicits.', inputSchema: z.object({ message: z.string() }) };
  server.registerTool('test_elicitation', eliciting, async ({ message }, { mcpReq }) => {
    const answer = await mcpReq.elicitInput({ message, requestedSchema: USER_SCHEMA });
    return { content: [text(`User response: ${JSON.stringify(answer)}`)] };
  });
  for (const [name, requestedSchema] of Object.entries(ELICITATIONS))
    server.registerTool(name, { description: 'Elicits.' }, async ({ mcpReq }) => {
      const answer = await mcpReq.elicitInput({ message: 'Please fill in', requestedSchema });
      const { action, content } = answer;
      const said = `Elicitation completed: action=${action}, content=${JSON.stringify(content)}`;
      return { content: [text(said)] };
    });
  const closing = { description: 'Closes its stream before it answers.' };
  server.registerTool('test_reconnection', closing, async ({ http }) => {
    http?.closeSSE?.();
    await delay(200);
    return { content: [text('Done.')] };
  });
}

function addResources(server: McpServer): void {
  const plain = { description: 'A text.', mimeType: 'text/plain' };
  server.registerResource('text', 'test://static-text', plain, ({ href: uri }) => {
    const said = 'This is the content of the static text resource.';
    return { contents: [{ uri, mimeType: 'text/plain', text: said }] };
  });
  server.registerResource('watched', 'test://watched-resource', plain, ({ href: uri }) => {
    return { contents: [{ uri, mimeType: 'text/plain', text: 'This is being watched.' }] };
  });
  const picture = { description: 'A picture.', mimeType: 'image/png' };
  server.registerResource('picture', 'test://static-binary', picture, ({ href: uri }) => {
    return { contents: [{ uri, mimeType: 'image/png', blob: PNG }] };
  });
  const template = new ResourceTemplate('test://template/{id}/data', { list: undefined });
  const data = { description: 'Data by id.', mimeType: 'application/json' };
  server.registerResource('data', template, data, ({ href: uri }, { id }) => {
    const found = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
    return { contents: [{ uri, mimeType: 'application/json', text: found }] };
  });
}

function addPrompts(server: McpServer): void {
  const say = (...contents: (ReturnType<typeof text | typeof resource> | typeof image)[]) => ({
    messages: contents.map((content) => ({ role: 'user' as const, content })),
  });
  server.registerPrompt('test_simple_prompt', { description: 'Simple.' }, () =>
    say(text('This is a simple prompt for testing.')),
  );
  const argsSchema = z.object({
    arg1: completable(z.string(), (start) => ['paris', 'park'].filter((v) => v.startsWith(start))),
    arg2: z.string(),
  });
  const described = { description: 'With arguments.', argsSchema };
  server.registerPrompt('test_prompt_with_arguments', described, ({ arg1, arg2 }) =>
    say(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)),
  );
  const embedding = {
    description: 'With a resource.',
    argsSchema: z.object({ resourceUri: z.string() }),
  };
  server.registerPrompt('test_prompt_with_embedded_resource', embedding, ({ resourceUri }) =>
    say(
      resource(resourceUri, 'text/plain', 'Embedded resource content for testing.'),
      text('Please process the embedded resource above.'),
    ),
  );
  server.registerPrompt('test_prompt_with_image', { description: 'With an image.' }, () =>
    say(image, text('Please analyze the image above.')),
  );
}

const conformance = definePlugin({
  name: 'conformance',
  version: '1.0.0',
  manifest: {
    title: 'Conformance',
    summary: 'Adds to the MCP server what its conformance suite asks for.',
    whenToUse: ['never'],
    category: 'test',
    visibility: 'silent',
  },
  dependsOn: ['mcp-server'],
  setup: ({ shared }) =>
    shared.require(MCP_SERVER).extend((server) => {
      server.server.registerCapabilities({ logging: {} });
      addTools(server);
      addAskingTools(server);
      addResources(server);
      addPrompts(server);
    }),
});

const app = await createOracleApp({ plugins: [conformance] });
console.log(`listening on ${await app.listen()}`);
for (const signal of ['SIGTERM', 'SIGINT'] as const)
  process.once(signal, () => void app.close().then(() => process.exit()));
