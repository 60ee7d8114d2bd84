const MARKUP = /<([^<>]*)>/g;
const ENTITIES: Readonly<Record<string, string>> = { '&amp;': '&', '&lt;': '<', '&gt;': '>' };

/** What somebody typed, out of Slack's markup; being addressed itself is left out. */
export function plainText(text: string, self: string | undefined): string {
  const plain = text.replace(MARKUP, (_, inside: string) => {
    const [target = '', label] = inside.split('|', 2);
    if (self !== undefined && target === `@${self}`) return '';
    return nameOf(target, label);
  });
  return plain.replace(/&(amp|lt|gt);/g, (entity) => ENTITIES[entity] ?? entity).trim();
}

function nameOf(target: string, label: string | undefined): string {
  const sign = target[0] ?? '';
  if (sign === '@' || sign === '#') return label ? `${sign}${label.replace(/^[@#]/, '')}` : target;
  if (sign === '!') return label ?? `@${target.slice(1)}`;
  const address = target.replace(/^mailto:/, '');
  return label && label !== address && label !== target ? `${label} (${address})` : address;
}
