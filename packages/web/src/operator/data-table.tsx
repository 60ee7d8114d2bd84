import type { ReactNode } from 'react';

export interface Column<Row> {
  readonly title: string;
  readonly isNumber?: boolean;
  readonly cell: (row: Row) => ReactNode;
}

interface DataTableProps<Row> {
  readonly title: string;
  readonly rows: readonly Row[];
  readonly columns: readonly Column<Row>[];
  readonly rowKey: (row: Row) => string;
  /** Shown instead of an empty table. */
  readonly empty: string;
  readonly aside?: ReactNode;
}

/** A card with a table that scrolls on narrow screens. */
export function DataTable<Row>(props: DataTableProps<Row>) {
  const { title, rows, columns, rowKey, empty, aside } = props;
  return (
    <section className="card">
      <div className="card-head">
        <h2 className="title-2 grow">{title}</h2>
        {aside}
      </div>
      {rows.length === 0 ? (
        <p className="empty">{empty}</p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard.
        <section className="table-wrap" tabIndex={0} aria-label={title}>
          <table className="table">
            <thead>
              <tr>
                {columns.map((column) => (
                  <th key={column.title} className={column.isNumber ? 'num' : undefined}>
                    {column.title}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={rowKey(row)}>
                  {columns.map((column) => (
                    <td key={column.title} className={column.isNumber ? 'num' : undefined}>
                      {column.cell(row)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </section>
  );
}

/** An identity, in full when pointed at. */
export const Code = ({ text, short }: { readonly text: string; readonly short?: string }) => (
  <code title={text} dir="ltr">
    {short ?? text}
  </code>
);

type Tone = 'good' | 'warning' | 'fault' | 'accent';

export const Badge = ({
  tone,
  children,
}: {
  readonly tone?: Tone;
  readonly children: ReactNode;
}) => <span className={tone ? `badge is-${tone}` : 'badge'}>{children}</span>;
