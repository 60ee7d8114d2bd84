import type { AgentTool } from './agent.js';
import type { ModelTool } from './model/model.js';

/** The tools of one model call: as the model is told, and as its calls find them. */
export interface Offer {
  readonly shown: readonly ModelTool[];
  readonly byName: ReadonlyMap<string, AgentTool>;
}

export const NOTHING: Offer = { shown: [], byName: new Map() };

export function offerOf(tools: readonly AgentTool[]): Offer {
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  return { shown: [...byName.values()].map(toModelTool), byName };
}

/** The offer as somebody else shows it to the model: with less in it or in other words, never with more. */
export function narrowed(offer: Offer, shown: readonly ModelTool[]): Offer {
  if (shown === offer.shown) return offer;
  const byName = new Map<string, AgentTool>();
  for (const { name } of shown) {
    const tool = offer.byName.get(name);
    if (tool) byName.set(name, tool);
  }
  return { shown: shown.filter(({ name }) => byName.has(name)), byName };
}

function toModelTool({ name, description, inputSchema }: AgentTool): ModelTool {
  return { name, description, inputSchema };
}
