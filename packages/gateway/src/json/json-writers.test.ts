import { describe, expect, it } from 'vitest';
import type { Facts } from '../../test/schema/facts.js';
import { MAPPING_FACTS } from '../../test/schema/mapping/mapping-facts.js';
import { MESSAGE_ROWS } from '../../test/schema/mapping/message-rows.js';
import { NUMBER_ROWS } from '../../test/schema/mapping/number-rows.js';
import { SPECIAL_ROWS } from '../../test/schema/mapping/special-rows.js';
import { TEXT_ROWS } from '../../test/schema/mapping/text-rows.js';
import { TIME_ROWS } from '../../test/schema/mapping/time-rows.js';
import { replyPrinter } from '../../test/schema/print-reply.js';
import { wire } from '../../test/schema/wire.js';

const rows = [...NUMBER_ROWS, ...TEXT_ROWS, ...TIME_ROWS, ...MESSAGE_ROWS, ...SPECIAL_ROWS];

const facts: Facts = {
  enums: MAPPING_FACTS.enums,
  messages: {
    ...MAPPING_FACTS.messages,
    ...Object.fromEntries(
      rows.map(({ field }, i) => [
        `rows.Row${i}`,
        [
          { no: 1, name: 'before', type: 'string' },
          { no: 5, name: 'field', ...field },
          { no: 9, name: 'after', type: 'string' },
        ],
      ]),
    ),
  },
};

const print = replyPrinter(facts);

describe('the JSON of a reply', () => {
  describe.each(rows.map((row, i) => ({ ...row, type: `rows.Row${i}` })))(
    '$title',
    ({ type, full, absent }) => {
      it.each(full)('full (%#)', (set, json) => {
        const whole = set(wire().text(1, 'b')).text(9, 'a');
        expect(print(type, whole)).toBe(`{"before":"b","field":${json},"after":"a"}`);
      });

      it.each(full)('full, in another order (%#)', (set, json) => {
        const whole = set(wire().text(9, 'x')).text(9, 'a').text(1, 'b');
        expect(print(type, whole)).toBe(`{"before":"b","field":${json},"after":"a"}`);
      });

      it('sparse', () => {
        const sparse = wire().text(9, 'a');
        expect(print(type, sparse)).toBe(`{"before":"","field":${absent},"after":"a"}`);
      });

      it('empty', () => {
        expect(print(type, wire())).toBe(`{"before":"","field":${absent},"after":""}`);
      });
    },
  );
});
