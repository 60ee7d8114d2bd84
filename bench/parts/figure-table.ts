import { type Figure, verdict } from './figure.ts';
import { table } from './markdown.ts';

/** The figures of one benchmark as a table in Markdown. */
export function figureTable(title: string, figures: readonly Figure[]): string {
  return table([[title, 'ours', 'beside it', 'ratio', 'target'], ...figures.map(figureRow)]);
}

export function figureRow({ name, ours, beside = '', ratio, target }: Figure): readonly string[] {
  const digits = (ratio ?? 0) < 10 ? 2 : 0;
  return [name, ours, beside, ratio?.toFixed(digits) ?? '', target ? verdict(target) : ''];
}
