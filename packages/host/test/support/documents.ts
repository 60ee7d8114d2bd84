import { strToU8, zipSync } from 'fflate';

/** A PDF with one text per page; `padding` is the size of a stream that no page uses. */
export function createPdf(pages: readonly string[], padding = 0): Buffer {
  const pdf = new PdfWriter();
  const pageIds = pages.map((_, i) => 4 + i * 2);
  pdf.add(1, '<< /Type /Catalog /Pages 2 0 R >>');
  const kids = pageIds.map((id) => `${id} 0 R`).join(' ');
  pdf.add(2, `<< /Type /Pages /Kids [${kids}] /Count ${pages.length} >>`);
  pdf.add(3, '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>');
  for (const [i, text] of pages.entries()) {
    const id = pageIds[i] ?? 0;
    const content = `BT /F1 12 Tf 50 700 Td (${text.replaceAll(/[()\\]/g, '\\$&')}) Tj ET`;
    const resources = '<< /Font << /F1 3 0 R >> >>';
    const page = `/Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources ${resources}`;
    pdf.add(id, `<< ${page} /Contents ${id + 1} 0 R >>`);
    pdf.add(id + 1, toStream(Buffer.from(content)));
  }
  if (padding > 0) pdf.add(4 + pages.length * 2, toStream(Buffer.alloc(padding, 'x')));
  return pdf.end();
}

const toStream = (data: Buffer) =>
  Buffer.concat([
    Buffer.from(`<< /Length ${data.length} >>\nstream\n`),
    data,
    Buffer.from('\nendstream'),
  ]);

class PdfWriter {
  private readonly parts: Buffer[] = [Buffer.from('%PDF-1.7\n')];
  private readonly offsets: number[] = [];
  private length = 9;

  add(id: number, body: string | Buffer): void {
    this.offsets[id] = this.length;
    this.write(Buffer.from(`${id} 0 obj\n`), Buffer.from(body), Buffer.from('\nendobj\n'));
  }

  end(): Buffer {
    const at = this.length;
    const size = this.offsets.length;
    const rows = Array.from({ length: size - 1 }, (_, i) => this.offsets[i + 1] ?? 0);
    const entries = rows.map((offset) => `${String(offset).padStart(10, '0')} 00000 n \n`);
    this.write(Buffer.from(`xref\n0 ${size}\n0000000000 65535 f \n${entries.join('')}`));
    this.write(Buffer.from(`trailer\n<< /Size ${size} /Root 1 0 R >>\nstartxref\n${at}\n%%EOF\n`));
    return Buffer.concat(this.parts);
  }

  private write(...parts: readonly Buffer[]): void {
    this.parts.push(...parts);
    this.length += parts.reduce((sum, part) => sum + part.length, 0);
  }
}

const XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>';
const TYPES = 'http://schemas.openxmlformats.org/package/2006/content-types';
const RELATIONS = 'http://schemas.openxmlformats.org/package/2006/relationships';
const OFFICE = 'http://schemas.openxmlformats.org/officeDocument/2006/relationships';
const FORMATS = 'application/vnd.openxmlformats-officedocument';
const WORD = 'http://schemas.openxmlformats.org/wordprocessingml/2006/main';
const SHEET = 'http://schemas.openxmlformats.org/spreadsheetml/2006/main';

/** A Word document; `document` replaces its XML, `extra` adds entries. */
export function createDocx(
  paragraphs: readonly string[],
  { document, extra = {} }: { document?: string; extra?: Record<string, Uint8Array> } = {},
): Uint8Array {
  const body = paragraphs.map((text) => `<w:p><w:r><w:t>${text}</w:t></w:r></w:p>`).join('');
  return zipSync({
    '[Content_Types].xml': strToU8(
      `${XML}<Types xmlns="${TYPES}"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/word/document.xml" ContentType="${FORMATS}.wordprocessingml.document.main+xml"/></Types>`,
    ),
    '_rels/.rels': strToU8(
      `${XML}<Relationships xmlns="${RELATIONS}"><Relationship Id="r1" Type="${OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>`,
    ),
    'word/document.xml': strToU8(
      document ?? `${XML}<w:document xmlns:w="${WORD}"><w:body>${body}</w:body></w:document>`,
    ),
    ...extra,
  });
}

/** A workbook of sheets by name. */
export function createXlsx(sheets: Readonly<Record<string, readonly (readonly string[])[]>>) {
  const names = Object.keys(sheets);
  const part = (i: number) => `worksheets/sheet${i + 1}.xml`;
  return zipSync({
    '[Content_Types].xml': strToU8(
      `${XML}<Types xmlns="${TYPES}"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" ContentType="${FORMATS}.spreadsheetml.sheet.main+xml"/>${names.map((_, i) => `<Override PartName="/xl/${part(i)}" ContentType="${FORMATS}.spreadsheetml.worksheet+xml"/>`).join('')}</Types>`,
    ),
    '_rels/.rels': strToU8(
      `${XML}<Relationships xmlns="${RELATIONS}"><Relationship Id="r1" Type="${OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>`,
    ),
    'xl/workbook.xml': strToU8(
      `${XML}<workbook xmlns="${SHEET}" xmlns:r="${OFFICE}"><sheets>${names.map((name, i) => `<sheet name="${name}" sheetId="${i + 1}" r:id="r${i + 1}"/>`).join('')}</sheets></workbook>`,
    ),
    'xl/_rels/workbook.xml.rels': strToU8(
      `${XML}<Relationships xmlns="${RELATIONS}">${names.map((_, i) => `<Relationship Id="r${i + 1}" Type="${OFFICE}/worksheet" Target="${part(i)}"/>`).join('')}</Relationships>`,
    ),
    ...Object.fromEntries(
      Object.values(sheets).map((rows, i) => [`xl/${part(i)}`, strToU8(toSheet(rows))]),
    ),
  });
}

function toSheet(rows: readonly (readonly string[])[]): string {
  const cells = (row: readonly string[], at: number) =>
    row.map(
      (text, i) =>
        `<c r="${String.fromCharCode(65 + i)}${at + 1}" t="inlineStr"><is><t>${text}</t></is></c>`,
    );
  const lines = rows.map((row, at) => `<row r="${at + 1}">${cells(row, at).join('')}</row>`);
  return `${XML}<worksheet xmlns="${SHEET}"><sheetData>${lines.join('')}</sheetData></worksheet>`;
}
