import { describe, expect, it } from 'vitest';
import { ByteBudget } from './byte-budget.js';

const budget = () => new ByteBudget({ maxBytes: 100, maxBytesPerKey: 40 });

describe('ByteBudget', () => {
  it('limits each key and all keys together', () => {
    const bytes = budget();
    expect(bytes.reserve('a', 40).error).toBeUndefined();
    expect(bytes.reserve('a', 1)).toEqual({ error: 'key' });
    expect(bytes.reserve('b', 40).error).toBeUndefined();
    expect(bytes.reserve('c', 21)).toEqual({ error: 'total' });
    expect(bytes.reserve('c', 20).error).toBeUndefined();
    expect(bytes.used).toBe(100);
  });

  it('has no limit per key by default', () => {
    const bytes = new ByteBudget({ maxBytes: 100 });
    expect(bytes.reserve('a', 100).error).toBeUndefined();
  });

  it('takes a reservation back once, however often it is released', () => {
    const bytes = budget();
    const { ok: first } = bytes.reserve('a', 30);
    bytes.reserve('b', 10);
    first?.release();
    first?.release();
    expect(bytes.used).toBe(10);
    expect(bytes.reserve('a', 40).error).toBeUndefined();
  });

  it('resizes a reservation, or leaves it as it was', () => {
    const bytes = budget();
    const reservation = bytes.open('a');
    expect(reservation.resize(30)).toBeUndefined();
    expect(reservation.resize(41)).toBe('key');
    expect([reservation.bytes, bytes.used]).toEqual([30, 30]);
    expect(reservation.resize(10)).toBeUndefined();
    expect([reservation.bytes, bytes.used]).toEqual([10, 10]);
  });

  it('shrinks a reservation however much the others hold', () => {
    const bytes = new ByteBudget({ maxBytes: 10 });
    const reservation = bytes.open('a');
    reservation.resize(6);
    bytes.reserve('b', 4);
    expect(reservation.resize(5)).toBeUndefined();
    expect(bytes.used).toBe(9);
  });

  it('reserveShared counts memory once until its last holder releases it', () => {
    const bytes = budget();
    const memory = new Uint8Array(40);
    const { ok: first } = bytes.reserveShared('a', memory);
    const { ok: second } = bytes.reserveShared('b', memory);
    expect(bytes.used).toBe(40);
    first?.();
    first?.();
    expect(bytes.used).toBe(40);
    second?.();
    expect(bytes.used).toBe(0);
    expect(bytes.reserveShared('a', new Uint8Array(41))).toEqual({ error: 'key' });
  });
});
