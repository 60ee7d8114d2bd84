import type { JsonObject } from '@sibyl/client';
import { Table as DataTable } from '../markdown/elements.js';

interface Table {
  readonly title: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** Reads what a model sent; anything else than a table becomes an empty one. */
export function readTable({ title, columns, rows }: JsonObject): Table {
  return {
    title: typeof title === 'string' ? title : '',
    columns: toList(columns).map(toCell),
    rows: toList(rows).map((row) => toList(row).map(toCell)),
  };
}

const toList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const toCell = (value: unknown): string =>
  value === null || value === undefined
    ? ''
    : typeof value === 'object'
      ? JSON.stringify(value)
      : String(value);

function TableView({ title, columns, rows }: Table) {
  return (
    <figure>
      {title && <figcaption className="strong">{title}</figcaption>}
      <DataTable>
        <thead>
          <tr>
            {columns.map((column, index) => (
              <th key={index} scope="col">
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>
              {columns.map((column, position) => (
                <td key={`${column} ${position.toString()}`}>{row[position] ?? ''}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </DataTable>
    </figure>
  );
}

/** A table of the arguments that a model sent. */
export const TableActionView = ({ args }: { readonly args: JsonObject }) => (
  <TableView {...readTable(args)} />
);
