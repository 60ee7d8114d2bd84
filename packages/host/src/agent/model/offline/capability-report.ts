import { z } from 'zod';

const Listed = z.object({
  capabilities: z.array(
    z.object({
      name: z.string(),
      title: z.string(),
      summary: z.string(),
      isLoaded: z.boolean(),
    }),
  ),
});

/** Tells people what `list_capabilities` told; nothing if that cannot be read. */
export function reportCapabilities(output: string, tools: Iterable<string>): string | undefined {
  const listed = read(output);
  if (!listed) return undefined;
  const usable = [...tools].map((name) => `\`${name}\``).join(', ');
  const more = listed.capabilities
    .filter(({ isLoaded }) => !isLoaded)
    .map(({ name, title, summary }) => `- ${title}: ${summary} Say “use load_capability ${name}”.`);
  const offer =
    more.length > 0 ? `\n\nThere is more that can be loaded:\n\n${more.join('\n')}` : '';
  return `I use these tools when you name them, as in “use list_capabilities”: ${usable}.${offer}`;
}

function read(output: string): z.infer<typeof Listed> | undefined {
  try {
    return Listed.safeParse(JSON.parse(output)).data;
  } catch {
    return undefined;
  }
}
