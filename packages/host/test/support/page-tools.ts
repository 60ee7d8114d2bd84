import type { ModelTurn } from './controlled-model.js';

/** A browser tool as a page declares it. */
export const scroll = {
  name: 'scroll',
  description: 'Scrolls the page',
  schema: { type: 'object', properties: { by: { type: 'number' } }, required: ['by'] },
};

/** An action as a page declares it. */
export const chart = { name: 'chart', description: 'Shows a chart', schema: {}, hasRender: true };

/** The results of tool calls that the model received. */
export const resultsIn = ({ body }: ModelTurn) =>
  body.messages
    .filter(({ role }: { role: string }) => role === 'tool')
    .map(({ content }: { content: string }) => JSON.parse(content));

/** Names of the tools in the request to the model. */
export const listTools = ({ body }: ModelTurn): string[] =>
  (body.tools ?? []).map((tool: { function: { name: string } }) => tool.function.name);
