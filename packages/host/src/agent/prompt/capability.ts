import { plainLine } from './plain-text.js';

const LINE_LIMIT = 500;

/** Something the agent can do, as its plugin describes it. */
export interface Capability {
  readonly title: string;
  readonly summary: string;
  readonly whenToUse: readonly string[];
  readonly whenNotToUse?: readonly string[] | undefined;
  /** Names of the tools that do it. */
  readonly tools: readonly string[];
}

/** A capability as the prompt lists it. */
export function describeCapability(capability: Capability): string {
  const { title, summary, whenToUse, whenNotToUse = [], tools } = capability;
  const lines = [
    `- ${plainLine(title, LINE_LIMIT)}: ${plainLine(summary, LINE_LIMIT)}`,
    ...listed('Use it when', whenToUse),
    ...listed('Do not use it when', whenNotToUse),
    ...(tools.length > 0 ? [`  Tools: ${tools.join(', ')}`] : []),
  ];
  return lines.join('\n');
}

function listed(heading: string, items: readonly string[]): string[] {
  if (items.length === 0) return [];
  return [`  ${heading}: ${items.map((item) => plainLine(item, LINE_LIMIT)).join('; ')}`];
}
