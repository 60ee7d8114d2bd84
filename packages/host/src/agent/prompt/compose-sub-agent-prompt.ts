import { currentTimeLine } from './current-time-line.js';
import { operatingPrinciples } from './operating-principles.js';
import { plainBlock } from './plain-text.js';

const PROMPT_LIMIT = 50_000;

interface SubAgentPromptParts {
  /** As its plugin wrote it. */
  readonly prompt: string;
  /** ISO 8601. */
  readonly currentTime: string;
  /** IANA name. */
  readonly timezone: string;
}

/** The system prompt of a sub-agent: its own words, and what holds for every agent. */
export function composeSubAgentPrompt(parts: SubAgentPromptParts): string {
  const { prompt, currentTime, timezone } = parts;
  const principles = operatingPrinciples.map((line) => `- ${line}`).join('\n');
  return [
    plainBlock(prompt, PROMPT_LIMIT),
    `## Operating principles\n${principles}`,
    'Your answer goes to the agent that gave you the task, not to the user.',
    `## Time\n${currentTimeLine(currentTime, timezone)}`,
  ].join('\n\n');
}
