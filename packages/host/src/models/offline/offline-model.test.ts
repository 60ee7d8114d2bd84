import { describe, expect, it } from 'vitest';
import type { ModelCall, ModelMessage, ModelPart, ModelTool } from '../model.js';
import { understands } from './intents.js';
import { createOfflineModel } from './offline-model.js';

const model = createOfflineModel(() => new Date('2030-01-02T03:04:05Z'));

const preferences = tool('set_user_preferences', {
  agentName: { type: 'string' },
  userName: { type: 'string' },
  language: { type: 'string' },
  tone: { type: 'string' },
  formality: { type: 'string' },
  length: { type: 'string' },
  format: { type: 'string' },
  customInstructions: { type: 'string' },
});
const remember = tool('remember', { fact: { type: 'string' } }, ['fact']);
const chart = tool(
  'show_chart',
  { title: { type: 'string' }, points: { type: 'array' }, width: { type: 'integer' } },
  ['title'],
);
const scroll = tool('scroll_to_top', {});
const dice = tool('roll_dice', { count: { type: 'integer' }, sides: { type: 'integer' } }, [
  'count',
]);
const tools = [preferences, remember, chart, scroll, dice];

function tool(name: string, properties: object, required: string[] = []): ModelTool {
  const inputSchema = { type: 'object', properties, required };
  return { name, description: '', inputSchema };
}

function ask(said: string, call: Partial<ModelCall> = {}): Promise<ModelPart[]> {
  return parts({ messages: [{ role: 'user', content: said }], ...call });
}

async function parts(call: Partial<ModelCall>): Promise<ModelPart[]> {
  const whole = { system: '', messages: [], tools, signal: new AbortController().signal, ...call };
  const found: ModelPart[] = [];
  for await (const part of model.stream(whole)) found.push(part);
  return found;
}

function callsIn(found: readonly ModelPart[]): [string, unknown][] {
  return found.flatMap((part) =>
    part.type === 'tool-call' ? [[part.call.name, JSON.parse(part.call.input)]] : [],
  );
}

function textIn(found: readonly ModelPart[]): string {
  return found.map((part) => (part.type === 'text' ? part.text : '')).join('');
}

describe('preferences in createOfflineModel', () => {
  it.each([
    ['answer in Spanish from now on', { language: 'Spanish' }],
    ['Please always reply in french.', { language: 'French' }],
    ['Can you speak German with me?', { language: 'German' }],
    ['call me Ada', { userName: 'Ada' }],
    ['From now on, call me Ada Lovelace please', { userName: 'Ada Lovelace' }],
    ['your name is Pythia', { agentName: 'Pythia' }],
    ['Call yourself Ada', { agentName: 'Ada' }],
    ['Call me Sam', { userName: 'Sam' }],
    ['Call yourself Ada and call me Sam', { agentName: 'Ada', userName: 'Sam' }],
    ['Please change your name to Ada Lovelace', { agentName: 'Ada Lovelace' }],
    ["I'll call you Delphi from now on", { agentName: 'Delphi' }],
    ['be brief', { length: 'concise' }],
    ['Keep your answers short and formal', { length: 'concise', formality: 'formal' }],
    ['I want detailed answers', { length: 'detailed' }],
    ['please keep it short', { length: 'concise' }],
    ['be more casual', { formality: 'casual' }],
    ['talk informally', { formality: 'casual' }],
    ['use a warm tone', { tone: 'warm' }],
    ['Always use bullet points', { format: 'bullet points' }],
    [
      'from now on, end every answer with a haiku',
      { customInstructions: 'end every answer with a haiku' },
    ],
    ['forget my language preference', { language: null }],
  ])('stores %j', async (said, change) => {
    expect(callsIn(await ask(said))).toEqual([['set_user_preferences', change]]);
  });

  it.each([
    'just this once, use bullets',
    'use bullets',
    'answer this in Spanish',
    'for this answer be brief',
    'translate this to Spanish',
    'What is the formal name of Spain?',
    'Why do people speak Spanish in Peru?',
    'hello',
    'write a short poem',
    'Write a poem in French.',
    'I speak Spanish',
    'give me a detailed plan',
    'Give me a short answer on soil.',
    'use formal logic to prove it',
    'The title must be short',
  ])('stores nothing for %j', async (said) => {
    expect(callsIn(await ask(said, { tools: [preferences] }))).toEqual([]);
  });

  it('explains that a tool is missing instead of calling it', async () => {
    const found = await ask('answer in Spanish from now on', { tools: [] });
    expect(callsIn(found)).toEqual([]);
    expect(textIn(found)).toContain('offline model');
  });
});

it.each([
  ['I work on soil carbon in Kenya.', 'I work on soil carbon in Kenya'],
  ['Remember that the gate code is 4711', 'the gate code is 4711'],
  ["I'm a botanist", "I'm a botanist"],
  ['My name is Ada', 'My name is Ada'],
])('createOfflineModel remembers %j', async (said, fact) => {
  expect(callsIn(await ask(said))).toEqual([['remember', { fact }]]);
});

describe('named tools in createOfflineModel', () => {
  it.each([
    ['use scroll_to_top', [['scroll_to_top', {}]]],
    [
      'Please call the tool show_chart with {"title": "Rain", "points": [{"x": 1}]} now',
      [['show_chart', { title: 'Rain', points: [{ x: 1 }] }]],
    ],
    [
      'run show_chart with title: Rain, width: 300',
      [['show_chart', { title: 'Rain', width: 300 }]],
    ],
    ['use roll_dice with sides: 20', [['roll_dice', { sides: 20 }]]],
    ['use roll_dice with sides: 20, count: 2', [['roll_dice', { sides: 20, count: 2 }]]],
    ['use roll_dice with 3', [['roll_dice', { count: 3 }]]],
    ['use show_chart for soil carbon', [['show_chart', { title: 'soil carbon' }]]],
    [
      'use scroll_to_top and remember it all',
      [
        ['scroll_to_top', {}],
        ['remember', { fact: 'it all' }],
      ],
    ],
    ['what does scroll_to_top do?', []],
  ])('%s', async (said, calls) => {
    expect(callsIn(await ask(said))).toEqual(calls);
  });

  it('runs the steps one after the other and ends', async () => {
    const said = 'use scroll_to_top, then use show_chart for rain';
    const messages: ModelMessage[] = [{ role: 'user', content: said }];
    expect(callsIn(await parts({ messages }))).toEqual([['scroll_to_top', {}]]);
    messages.push({ role: 'assistant', text: '' }, toolMessage('"ok"'));
    expect(callsIn(await parts({ messages }))).toEqual([['show_chart', { title: 'rain' }]]);
    messages.push({ role: 'assistant', text: '' }, toolMessage('"drawn"'));
    const last = await parts({ messages });
    expect(callsIn(last)).toEqual([]);
    expect(textIn(last)).toBe('I have done it: drawn');
  });
});

function toolMessage(output: string): ModelMessage {
  return { role: 'tool', results: [{ id: '1', name: 'x', output, isError: false }] };
}

it('createOfflineModel reports whether a tool failed', async () => {
  const results = [{ id: '1', name: 'x', output: 'no such page', isError: true }];
  const found = await parts({ messages: [{ role: 'tool', results }] });
  expect(textIn(found)).toBe('That did not work: x said no such page');
});

it.each([
  ['{"rolls":[3,4],"sum":7}', 'I used x. Rolls: 3, 4. Sum: 7.'],
  ['{"facts":[]}', 'I used x. Facts: none.'],
  [
    '{"isOpen":true,"by_day":{"mon":1,"tue":null}}',
    'I used x. Is open: true. By day: mon 1, tue none.',
  ],
  ['{"rows":[{"id":1,"text":"Tea"},{"a":[1,2]}]}', 'I used x. Rows: \n\n- Tea\n- a 1, 2.'],
  ['{"id":"01a1","createdAt":"2030","name":"Tea"}', 'I used x. Name: Tea.'],
  ['[1,"two"]', 'I have done it: 1, two'],
  ['42', 'I have done it: 42'],
])('createOfflineModel reports %s in words', async (output, text) => {
  const results = [{ id: '1', name: 'x', output, isError: false }];
  expect(textIn(await parts({ messages: [{ role: 'tool', results }] }))).toBe(text);
});

it('createOfflineModel recalls facts and says what it found', async () => {
  const recall = tool('recall', { query: { type: 'string' } }, ['query']);
  const found = await ask('What do you know about my work?', { tools: [recall] });
  expect(callsIn(found)).toEqual([['recall', { query: 'work' }]]);
  const report = async (facts: object[]) => {
    const output = JSON.stringify({ facts });
    const results = [{ id: '1', name: 'recall', output, isError: false }];
    return textIn(await parts({ messages: [{ role: 'tool', results }] }));
  };
  expect(await report([{ id: 'a', text: 'I work on soil' }])).toBe(
    'I remember:\n\n- I work on soil',
  );
  expect(await report([])).toBe('I do not remember anything about that.');
  const output = JSON.stringify({ id: 'a', text: 'I work on soil', createdAt: '2030-01-01' });
  const results = [{ id: '1', name: 'remember', output, isError: false }];
  const stored = await parts({ messages: [{ role: 'tool', results }] });
  expect(textIn(stored)).toBe('I will remember: I work on soil');
});

it.each([
  ['Call me Sam.', true],
  ['What do you know about my work?', true],
  ['use roll_dice with count: 2', true],
  ['Remind me in two hours.', false],
  ['Which claims of collection 2 are still pending?', false],
])('understands(%j) is %j', (message, expected) => {
  expect(understands(message)).toBe(expected);
});

it('createOfflineModel describes loadable capabilities as text', async () => {
  const chain = { name: 'chain', title: 'Chain', summary: 'Looks things up.' };
  const report = async (isLoaded: boolean) => {
    const output = JSON.stringify({ capabilities: [{ ...chain, isLoaded, tools: [] }] });
    const results = [{ id: '1', name: 'list_capabilities', output, isError: false }];
    return textIn(await parts({ messages: [{ role: 'tool', results }] }));
  };
  expect(await report(false)).toContain('`scroll_to_top`');
  expect(await report(false)).toContain(
    '- Chain: Looks things up. Say “use load_capability chain”.',
  );
  expect(await report(true)).not.toContain('Chain');
});

it('createOfflineModel answers with the time from the note, otherwise from the clock', async () => {
  const askWith = (note: string) =>
    ask('', { messages: [{ role: 'user', content: 'What time is it?', note }] });
  const sent = '[Sent: Monday, 2030-06-03T10:00+03:00 (Africa/Nairobi)]';
  expect(textIn(await askWith(sent))).toBe(
    'It is Monday, 2030-06-03T10:00+03:00 (Africa/Nairobi).',
  );
  const now = '[Current time: Monday, 2030-06-03T11:00+03:00 (Africa/Nairobi)]';
  expect(textIn(await askWith(`${sent}\n${now}`))).toContain('T11:00');
  expect(textIn(await ask("what's the date today"))).toContain('2030-01-02T03:04:05');
});

it('createOfflineModel lists what it can do, with a tool if there is one', async () => {
  expect(textIn(await ask('What can you do?'))).toContain('show_chart, scroll_to_top');
  const list = tool('list_capabilities', {});
  expect(callsIn(await ask('what tools do you have', { tools: [list] }))).toEqual([
    ['list_capabilities', {}],
  ]);
});

it('createOfflineModel writes titles and summaries', async () => {
  const messages: ModelMessage[] = [
    { role: 'user', content: 'User: How does soil carbon get measured in the field? Explain it.' },
    { role: 'assistant', text: 'With cores. They are dried.' },
  ];
  const title = { system: 'Write a short title for this conversation.', tools: [], messages };
  expect(textIn(await parts(title))).toBe('How does soil carbon get measured');
  const summary = { ...title, system: 'Give a summary of the conversation.' };
  expect(textIn(await parts(summary))).toBe(
    'How does soil carbon get measured in the field? With cores.',
  );
});

it('createOfflineModel streams word by word and counts the words', async () => {
  const found = await ask('count to 4', { system: 'Two words' });
  expect(found).toEqual([
    ...['1', ' 2', ' 3', ' 4'].map((text) => ({ type: 'text', text })),
    { type: 'finish', reason: 'stop', usage: { input: 5, output: 4, cached: 0 } },
  ]);
});

it('createOfflineModel throws the reason of the abort', async () => {
  const stop = new AbortController();
  const call = { system: '', tools, signal: stop.signal };
  const messages: ModelMessage[] = [{ role: 'user', content: 'count slowly to 1000' }];
  const seen: string[] = [];
  const reason = new Error('enough');
  await expect(async () => {
    for await (const part of model.stream({ ...call, messages })) {
      if (part.type === 'text') seen.push(part.text);
      if (seen.length === 2) stop.abort(reason);
    }
  }).rejects.toBe(reason);
  expect(seen).toHaveLength(2);
});

it('createOfflineModel explains what it is and how to configure a real model', async () => {
  const text = textIn(await ask('Why is the sky blue?'));
  expect(text).toContain('Why is the sky blue?');
  for (const word of ['offline model', 'tests', 'OPENAI_API_KEY', 'MODEL_BASE_URL'])
    expect(text).toContain(word);
});

const long = (piece: string) => piece.repeat(Math.ceil(190_000 / piece.length));

// Each would keep the host busy for a minute if a rule looked at it from every place in it.
it.each([
  ['spaces', `x${long(' ')}y`],
  ['spaces in a step', `use scroll_to_top${long(' ')}y`],
  ['dots', long('.')],
  ['dots in a fact', `remember that ${long('.')}x`],
  ['questions', long('what is ')],
  ['lists', long('list ')],
  ['one word', `use show_chart ${long('a')}`],
  ['quotes', `use show_chart ${long('a: "')}`],
  ['closing braces', `use show_chart {${long('}')}`],
  ['broken JSON', `use show_chart {"a": "${'x'.repeat(90_000)}"${'}x'.repeat(50_000)}`],
  ['wishes', long('please always call me A ')],
  ['names', `call me ${long('A ')}`],
  ['question marks', long('? ')],
])(
  'createOfflineModel answers a long message of %s in linear time',
  { timeout: 60_000 },
  async (_, said) => {
    expect((await ask(said)).at(-1)).toMatchObject({ type: 'finish' });
  },
);

it.each([
  ['the message', 'use sort with items: a, items: b, items: c', ['items']],
  ['the schema', 'use sort with a, b', ['items', 'items', 'items']],
])(
  'createOfflineModel reads a field once, however often %s names it',
  async (_, said, required) => {
    let reads = 0;
    const items = Object.defineProperty({}, 'enum', {
      get: () => {
        reads += 1;
      },
    });
    const found = await ask(said, { tools: [tool('sort', { items }, required)] });
    expect(callsIn(found)).toEqual([['sort', { items: expect.any(String) }]]);
    expect(reads).toBe(1);
  },
);

it('createOfflineModel writes the title of a long message in linear time', {
  timeout: 60_000,
}, async () => {
  const title = { system: 'Write a short title for this conversation.', tools: [] };
  const said = `a${'.'.repeat(900_000)}`;
  expect(textIn(await ask(`${said}b`, title))).toBe(`${said}b`);
  expect(textIn(await ask(said, title))).toBe('a');
});
