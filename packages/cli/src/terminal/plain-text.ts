/** Without the characters that steer a terminal: a model or tool must not move its cursor or name its window. */
export const plainText = (text: string): string =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is taken out.
  text.replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, '');
