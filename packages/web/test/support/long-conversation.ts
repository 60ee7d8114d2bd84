/** What a long conversation consists of, as ChatGPT exports it: with Markdown of all kinds, and one word in its message 1,001. */
export function createLongConversation(messages: number): string {
  const ids = Array.from({ length: messages }, (_, i) => `m${i}`);
  const mapping = Object.fromEntries(
    ids.map((id, i) => [
      id,
      {
        parent: ids[i - 1] ?? null,
        message: {
          author: { role: i % 2 === 0 ? 'user' : 'assistant' },
          content: { content_type: 'text', parts: [i % 2 === 0 ? ask(i) : answer(i)] },
          create_time: 1_700_000_000 + i,
        },
      },
    ]),
  );
  const title = `A conversation of ${messages} messages`;
  const times = { create_time: 1_700_000_000, update_time: 1_700_100_000 };
  return JSON.stringify([{ id: 'long', title, ...times, mapping, current_node: ids.at(-1) }]);
}

/** The word that only one message contains. */
export const NEEDLE = 'quokka';

const ask = (i: number) =>
  `Question ${i}: how did site ${i % 7} do?${i === 1000 ? ` Like the ${NEEDLE}?` : ''}`;

const answer = (i: number) => {
  const text = `Answer ${i}. Site ${i % 7} had **${i % 300} mm** of rain, which is \`${i % 40} %\` less.`;
  if (i % 10 === 1)
    return `${text}\n\n| Site | mm |\n|---|---|\n| Kitui | ${i} |\n| Machakos | 3 |`;
  if (i % 10 === 5) return `${text}\n\n\`\`\`python\nprint(${i})\n\`\`\`\n\nThat is all.`;
  return `${text}\n\n${'The long rains came late this year. '.repeat(i % 12)}\n\n- one\n- two`;
};
