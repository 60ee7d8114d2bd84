/** The most points of a chart. */
export const MAX_POINTS = 100;

export const chartSchema = {
  type: 'object',
  properties: {
    title: { type: 'string' },
    kind: { type: 'string', enum: ['bar', 'line'] },
    unit: { type: 'string' },
    points: {
      type: 'array',
      minItems: 1,
      maxItems: MAX_POINTS,
      items: {
        type: 'object',
        properties: { label: { type: 'string' }, value: { type: 'number' } },
        required: ['label', 'value'],
      },
    },
  },
  required: ['title', 'kind', 'points'],
} as const;

export const tableSchema = {
  type: 'object',
  properties: {
    title: { type: 'string' },
    columns: { type: 'array', items: { type: 'string' }, minItems: 1, maxItems: 20 },
    rows: {
      type: 'array',
      maxItems: 500,
      items: { type: 'array', items: { type: ['string', 'number', 'boolean', 'null'] } },
    },
  },
  required: ['columns', 'rows'],
} as const;

export const formSchema = {
  type: 'object',
  properties: {
    title: { type: 'string' },
    fields: {
      type: 'array',
      minItems: 1,
      maxItems: 20,
      items: {
        type: 'object',
        properties: {
          name: { type: 'string' },
          label: { type: 'string' },
          kind: { type: 'string', enum: ['text', 'number', 'date', 'choice'] },
          choices: { type: 'array', items: { type: 'string' }, maxItems: 50 },
        },
        required: ['name', 'label', 'kind'],
      },
    },
  },
  required: ['title', 'fields'],
} as const;
