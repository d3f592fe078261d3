// mpi.h with the C interface only. The C++ interface, which some libraries still include, was removed from MPI in 2012
// and does not compile without warnings.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
