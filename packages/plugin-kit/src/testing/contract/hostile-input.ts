import type { TurnParts } from '../turn-parts.js';

const LONG = 'x'.repeat(50_000);
const ODD_TEXTS = ['', ' ', '\u0000', LONG, '../../etc/passwd', "'; drop table x; --", '\ud800'];
const ODD_VALUES: readonly unknown[] = [...ODD_TEXTS, null, -1, 1e308, true, [], {}, [[]]];

/** Inputs that no tool was made for, some with the fields it has. */
export function hostileInputs(fields: readonly string[]): unknown[] {
  const polluting = JSON.parse('{"__proto__": {"isAdmin": true}, "constructor": 1}');
  const filled = ODD_VALUES.map((value) => Object.fromEntries(fields.map((f) => [f, value])));
  return [...ODD_VALUES, polluting, ...filled];
}

/** Texts that no path parameter was made for. */
export const oddSegments: readonly string[] = [
  'unknown',
  '%00',
  '..%2f..%2fetc%2fpasswd',
  encodeURIComponent("' or 1=1 --"),
  encodeURIComponent('💥'),
  'x'.repeat(2000),
];

/** Bodies that no route was made for. */
export const oddBodies: readonly string[] = [
  '',
  '{',
  'null',
  '[]',
  '"text"',
  '{"__proto__":{"isAdmin":true}}',
  JSON.stringify({ text: LONG.slice(0, 20_000) }),
  `${'['.repeat(500)}${']'.repeat(500)}`,
];

/** Turns as a careless or hostile client could ask for them. */
export const hostileTurns: readonly TurnParts[] = [
  {},
  { metadata: { editorRoomId: 7, spaceId: null, ['__proto__']: {}, deep: { a: [{}] } } },
  { user: 'did:key:zUnknown', timezone: 'Nowhere/Land', client: 'unheard-of', roomId: '' },
  { matrix: { homeServer: 'not a url', accessToken: LONG } },
  { mcpInvocations: { constructor: 'x', a__b: 'not base64 §', '': '' } },
  {
    attachments: [
      { mxcUri: 'mxc://nowhere.invalid/x', filename: '../../x', mimetype: 'application/pdf' },
      { eventId: '$nothing', filename: LONG.slice(0, 255), mimetype: 'x/y' },
    ],
  },
  {
    tools: [
      { name: 'odd', description: '', schema: {} },
      { name: 'odd', description: LONG, schema: { type: 'array', $ref: '#/nowhere' } },
    ],
    agActions: [{ name: 'odd', description: '', schema: { properties: 5 } }],
  },
];
