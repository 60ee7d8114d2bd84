import type { ModelTool } from '../model.js';
import type { Intent } from './intent.js';
import { preferencesIn } from './preference-rules.js';
import { argumentsFrom } from './tool-arguments.js';
import { withoutEnd } from './without-end.js';

/** Keeps how the user wants to be answered. */
export const changePreferences: Intent = ({ said, tools }) => {
  const tool = tools.get('set_user_preferences');
  const change = tool && preferencesIn(said);
  if (!change) return undefined;
  const input = onlyKnown(change, tool);
  return Object.keys(input).length > 0 ? { calls: [{ name: tool.name, input }] } : undefined;
};

function onlyKnown(change: Readonly<Record<string, unknown>>, { inputSchema }: ModelTool) {
  const { properties } = inputSchema;
  if (typeof properties !== 'object' || properties === null) return change;
  return Object.fromEntries(Object.entries(change).filter(([key]) => key in properties));
}

const FACTS: readonly RegExp[] = [
  /\bremember (?:that )?(.+)/is,
  /\b(I (?:work|live|study|teach|speak|come from|am based|was born)\b.+)/is,
  /\b(I(?:'m| am) (?:a|an|the|from|based)\b.+)/is,
  /\b(my (?:name|birthday|job|team|company|wife|husband|partner|daughter|son|dog|cat) is\b.+)/is,
];

/** Keeps a fact about the user. */
export const rememberFact: Intent = ({ said, tools }) => {
  const tool = tools.get('remember');
  if (!tool || said.endsWith('?')) return undefined;
  const fact = FACTS.map((pattern) => pattern.exec(said)?.[1]).find(Boolean);
  if (!fact) return undefined;
  const text = withoutEnd(fact.trim(), '.!');
  return { calls: [{ name: tool.name, input: argumentsFrom(tool, text) }] };
};
