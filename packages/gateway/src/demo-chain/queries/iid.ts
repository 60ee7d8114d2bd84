import { paginate } from '../paginate.js';
import { IID_DOCUMENTS } from '../records/entities.js';
import { found, required, type ServiceAnswers } from './answers.js';

const stored = IID_DOCUMENTS.map((record) => ({ key: String(record.id), record }));

export const iidAnswers: ServiceAnswers = {
  IidDocuments({ pagination: page }) {
    const { records, pagination } = paginate(stored, page);
    return { iidDocuments: records, pagination };
  },
  IidDocument(request) {
    const id = required(request, 'id');
    return { iidDocument: found(IID_DOCUMENTS, (one) => one.id === id, `did document ${id}`) };
  },
};
